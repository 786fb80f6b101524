import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import DNS from 'dns2'
import t, { type Test } from 'tap'
import type { ResolveHost } from '../../proxy/egress/agent.ts'
import { httpGet } from '../../proxy/mcp/http-get/tool.ts'
import { TOOL_CALL } from '../support/permit.ts'

// Inside what IPv6 calls global, and given out to nobody: looks public, leads nowhere.
const PUBLIC_LOOKING = '2d00::1'

/**
 * A DNS server on loopback that says a public address the first time it is asked for a name, and 127.0.0.1
 * from then on.
 */
async function rebindingDns(t: Test): Promise<{ resolve: ResolveHost; asked: string[] }> {
  const asked: string[] = []
  const server = DNS.createServer({
    udp: true,
    handle: (request, send) => {
      const response = DNS.Packet.createResponseFromRequest(request)
      const [question] = request.questions
      const name = question?.name ?? ''
      asked.push(name)
      const first = asked.filter((other) => other === name).length === 1
      const { A, AAAA } = DNS.Packet.TYPE
      const common = { name, class: DNS.Packet.CLASS.IN, ttl: 0 }
      const record = first ? { type: AAAA, address: PUBLIC_LOOKING } : { type: A, address: '127.0.0.1' }
      if (question?.type === record.type)
        response.answers.push(new DNS.Packet.Resource({ ...common, ...record }))
      void send(response)
    },
  })
  const { udp } = await server.listen({ udp: { port: 0, address: '127.0.0.1' } })
  t.teardown(() => server.close())
  const resolver = new Resolver()
  resolver.setServers([`127.0.0.1:${udp?.port}`])
  const resolve: ResolveHost = async (hostname) => {
    const six = await resolver.resolve6(hostname).catch(() => [])
    const four = six.length > 0 ? [] : await resolver.resolve4(hostname)
    return [
      ...six.map((address) => ({ address, family: 6 as const })),
      ...four.map((address) => ({ address, family: 4 as const })),
    ]
  }
  return { resolve, asked }
}

/** The addresses that this process tried to connect to, while the test runs. */
function attempts(t: Test): string[] {
  const seen: string[] = []
  const opened = (message: unknown) => {
    // Proven by the channel's documentation: it publishes the socket.
    const { socket } = message as { socket: Socket }
    socket.on('connectionAttempt', (address: string) => {
      seen.push(address)
      // Nobody answers there; waiting for that would only take time.
      if (address === PUBLIC_LOOKING) process.nextTick(() => socket.destroy(new Error('no route')))
    })
  }
  subscribe('net.client.socket', opened)
  t.teardown(() => unsubscribe('net.client.socket', opened))
  return seen
}

await t.test(
  'threat 19: a name that is rebound after it was judged leads where it was judged to, or nowhere',
  async (t) => {
    let reached = 0
    const secret = createServer((_req, res) => void res.end('secret')).on('connection', () => (reached += 1))
    await once(secret.listen(0, '127.0.0.1'), 'listening')
    t.teardown(() => secret.close())
    // Proven: it listens on a port.
    const { port } = secret.address() as AddressInfo
    const { resolve, asked } = await rebindingDns(t)
    const tried = attempts(t)
    const allowed_hosts = [`rebind.example:${port}`, `again.example:${port}`]
    const fetch = httpGet({ allowed_hosts, timeout_ms: 5000, max_bytes: 1024 }, resolve)
    const signal = new AbortController().signal

    for (const name of ['rebind.example', 'again.example']) {
      asked.length = 0
      tried.length = 0
      const first = await fetch(TOOL_CALL, { url: `http://${name}:${port}/` }, signal)
      t.equal(first.result.isError, true)
      t.not(first.report.reason, 'address_refused', 'the first answer looks public')
      t.same(asked, [name], 'DNS was asked once')
      t.same(tried, [PUBLIC_LOOKING], 'and what it said is what was connected to')

      const second = await fetch(TOOL_CALL, { url: `http://${name}:${port}/` }, signal)
      t.same(second.report, { host: name, redirects: 0, reason: 'address_refused', range: 'loopback' })
      t.same(second.result.content, first.result.content, 'the caller cannot tell the two apart')
      t.same(tried, [PUBLIC_LOOKING], 'no second attempt')
    }
    t.equal(reached, 0)
  },
)
