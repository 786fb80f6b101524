import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { egressAgent } from '../../proxy/egress/agent.ts'

/**
 * A site on loopback under a public-looking name, and an agent that finds it there. `answerMs` is the
 * agent's; 0 is no limit.
 */
export async function loopbackSite(t: Test, answer: RequestListener, answerMs: number) {
  const server = createServer(answer)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const agent = egressAgent({
    allowPrivate: true,
    connectMs: 10_000,
    answerMs,
    keepAlive: false,
    resolve: () => Promise.resolve([{ address: '127.0.0.1', family: 4 }]),
  })
  t.teardown(async () => {
    server.closeAllConnections()
    server.close()
    await agent.destroy()
  })
  // Proven: it listens on a port.
  const { port } = server.address() as AddressInfo
  return { agent, url: `http://a.site.example:${port}`, allowedHosts: [`*.site.example:${port}`] }
}
