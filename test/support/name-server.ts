import DNS from 'dns2'
import type { Test } from 'tap'

const [SERVFAIL, NXDOMAIN] = [2, 3]

/**
 * A name server on loopback; it ends with the test. `say` is asked what it says of a name: an IPv4 address, `none` (there is no
 * such name), `broken`, or `silent`. Nothing has an IPv6 address.
 */
export async function nameServer(t: Test, say: (name: string) => string) {
  const asked: string[] = []
  const server = DNS.createServer({
    udp: true,
    handle: (request, send) => {
      const [question] = request.questions
      const { name = '', type } = question ?? {}
      const said = say(name)
      const { A, AAAA } = DNS.Packet.TYPE
      if (type !== AAAA) asked.push(name)
      if (said === 'silent') return
      const response = DNS.Packet.createResponseFromRequest(request)
      if (said === 'none') response.header.rcode = NXDOMAIN
      else if (said === 'broken') response.header.rcode = SERVFAIL
      else if (type === A) {
        const record = { name, type: A, class: DNS.Packet.CLASS.IN, ttl: 1, address: said }
        response.answers.push(new DNS.Packet.Resource(record))
      }
      void send(response)
    },
  })
  const { udp } = await server.listen({ udp: { port: 0, address: '127.0.0.1' } })
  t.teardown(() => server.close())
  return { asked, servers: [`127.0.0.1:${udp?.port}`] }
}
