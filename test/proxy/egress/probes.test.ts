import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { HostNameCache } from '../../../db/host-names/kept-names.ts'
import { egressAgent, POOL_IDLE_MS, TCP_PROBE_MS } from '../../../proxy/egress/agent.ts'
import { PacedAgents } from '../../../proxy/egress/paced-agents.ts'
import { testGateway } from '../../support/gateway.ts'

/**
 * In how many seconds the kernel asks whether the other side of a connection to a port is there, or of one that came to
 * it; null: never.
 */
async function probeIn(port: number, side: 'to' | 'from' = 'to'): Promise<number | null> {
  const address = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const table = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map((line) => line.trim().split(/\s+/))
  // sl local remote state queues timer:when (in hundredths of a second); 02 is the timer of TCP's keep-alive.
  const [kind, when = ''] =
    table
      .find(([, local, to, state]) => (side === 'to' ? to : local) === address && state === '01')?.[5]
      ?.split(':') ?? []
  return kind === '02' ? Number.parseInt(when, 16) / 100 : null
}

const skip = process.platform === 'linux' ? false : 'the kernel says so on Linux alone'

await t.test(
  'H17: a NAT forgets no idle connection to an upstream: TCP asks within seconds',
  { skip },
  async (t) => {
    const server = createServer((_req, res) => res.end('{}')).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    const { port } = server.address() as AddressInfo
    const judged = egressAgent({ allowPrivate: true, connectMs: 5_000, answerMs: 5_000 })
    const paced = new PacedAgents({ keepAlive: true, names: new HostNameCache() })
    for (const agent of [judged, paced.open(5_000)]) {
      const { body } = await agent.request({ origin: `http://127.0.0.1:${port}`, path: '/', method: 'GET' })
      await body.dump()
      const seconds = await probeIn(port)
      t.ok(seconds !== null && seconds <= TCP_PROBE_MS / 1000, `in ${seconds} s`)
      await agent.close()
    }
    t.ok(TCP_PROBE_MS * 2 <= POOL_IDLE_MS, 'before it would be used again, and dropped')
  },
)

await t.test(
  'a caller who waits for minutes is asked for within one, and told how long an idle connection stays',
  { skip },
  async (t) => {
    const gateway = await testGateway(t)
    const { headers } = await gateway.call(null, 'GET', '/health')
    t.equal(headers['keep-alive'], 'timeout=95')
    const seconds = await probeIn(Number(new URL(gateway.url).port), 'from')
    t.ok(seconds !== null && seconds <= 60, `in ${seconds} s`)
  },
)
