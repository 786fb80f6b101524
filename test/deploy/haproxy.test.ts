import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { Agent } from 'node:https'
import { join } from 'node:path'
import DNS from 'dns2'
import t, { type Test } from 'tap'
import { haproxyProgram } from '../../scripts/cluster/haproxy.ts'
import { startTied } from '../../scripts/cluster/tied.ts'
import { freePort } from '../../scripts/free-port.ts'
import { ask, scratch, type TestGateway, testGateway } from '../support/gateway.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'
import { eventually } from '../support/settled.ts'
import { BALANCER } from '../support/tls/relay.ts'

const FILE = join(import.meta.dirname, '../../deploy/haproxy.cfg')
const PROGRAM = haproxyProgram() ?? ''
const skip = skipWithoutHaproxy

t.test('deploy/haproxy.cfg is what HAProxy takes without a warning', { skip }, async (t) => {
  t.match(
    execFileSync(PROGRAM, ['-c', '-f', FILE], { encoding: 'utf8', stdio: 'pipe' }),
    'Configuration file is valid',
  )
})

/** A name server that says the same addresses for every name. Returns its port. */
async function nameServer(t: Test, addresses: readonly string[]): Promise<number> {
  const server = DNS.createServer({
    udp: true,
    handle: (request, send) => {
      const response = DNS.Packet.createResponseFromRequest(request)
      const [question] = request.questions
      const { A } = DNS.Packet.TYPE
      const common = { name: question?.name ?? '', class: DNS.Packet.CLASS.IN, ttl: 1, type: A }
      if (question?.type === A)
        for (const address of addresses)
          response.answers.push(new DNS.Packet.Resource({ ...common, address }))
      void send(response)
    },
  })
  const { udp } = await server.listen({ udp: { port: 0, address: '127.0.0.1' } })
  t.teardown(() => server.close())
  return udp?.port ?? 0
}

/** A HAProxy by that file, save the port that it listens on, its name server, and the address that it comes from. */
async function started(t: Test, gateways: string, dns: number): Promise<number> {
  const port = await freePort()
  const text = readFileSync(FILE, 'utf8')
    .replace('bind *:9443', `bind 127.0.0.1:${port}`)
    .replace('parse-resolv-conf', `nameserver test 127.0.0.1:${dns}`)
    .replace('default-server send-proxy-v2', `default-server source ${BALANCER} send-proxy-v2`)
  const file = join(await scratch(t), 'haproxy.cfg')
  writeFileSync(file, text)
  const tied = await startTied(PROGRAM, ['-db', '-f', file], { env: { SALLYPORT_GATEWAYS: gateways } })
  t.teardown(async () => {
    tied.signal('SIGKILL')
    await tied.ended
  })
  return port
}

/** The status that a stranger gets, from an address of this machine; 0 where there is no answer. */
async function stranger({ ca }: TestGateway, port: number): Promise<number> {
  const agent = new Agent({ ca, localAddress: '127.0.0.8' })
  const answer = ask(`https://127.0.0.1:${port}/v1/models`, 'GET', { agent })
  return answer.then(
    ({ status }) => status,
    () => 0,
  )
}

t.test(
  'it finds every gateway by one name, says who calls, and goes past one that is gone',
  { skip },
  async (t) => {
    const port = await freePort()
    const gateway = (address: string): Promise<TestGateway> =>
      testGateway(t, {
        settings: {
          MCP_PROXY_LISTEN: `${address}:${port}`,
          MCP_PROXY_HOSTNAMES: `${address},127.0.0.1`,
          MCP_PROXY_PROXY_PROTOCOL: BALANCER,
        },
      })
    // One after the other: the second one finds the CA of the first.
    const one = await gateway('127.0.0.11')
    const other = await gateway('127.0.0.12')
    const names = await nameServer(t, ['127.0.0.11', '127.0.0.12'])
    const balancer = await started(t, `gateways.example:${port}`, names)
    const callers = (): readonly string[] =>
      [one, other].map(({ log }) => String(log.find(({ path }) => path === '/v1/models')?.remote_address))
    const called = async (): Promise<readonly string[]> => {
      await stranger(one, balancer)
      return callers()
    }
    t.same(await eventually(called, (who) => !who.includes('undefined')), ['127.0.0.8', '127.0.0.8'])

    // By the delay of compose.yaml: nobody who calls meanwhile notices.
    const compose = readFileSync(join(import.meta.dirname, '../../deploy/compose.yaml'), 'utf8')
    const delayMs = Number(/MCP_PROXY_DRAIN_DELAY_MS: "(\d+)"/.exec(compose)?.[1])
    let stopped = false
    const calling = Array.from({ length: 4 }, async () => {
      const got: number[] = []
      while (!stopped) got.push(await stranger(one, balancer))
      return got
    })
    await other.close(10_000, { why: 'SIGTERM', delayMs })
    stopped = true
    const got = (await Promise.all(calling)).flat()
    t.ok(got.length > 100)
    t.same([...new Set(got)], [401], 'no call is lost')
    t.ok(
      other.log.filter(({ path }) => path === '/v1/models').length > 1,
      'it took some while it was leaving',
    )
    for (let n = 0; n < 8; n += 1) t.equal(await stranger(one, balancer), 401)
  },
)
