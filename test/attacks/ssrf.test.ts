import { createHook } from 'node:async_hooks'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { OWN_AUTHORITY } from '../../plugins/call-authority.ts'
import { egressAgent, type ResolveHost } from '../../proxy/egress/agent.ts'
import { fetchVia } from '../../proxy/mcp/http-get/fetch.ts'
import { FetchFailure, firstHop, nextHop, parseAllowedHosts } from '../../proxy/mcp/http-get/hop.ts'
import { httpGet } from '../../proxy/mcp/http-get/tool.ts'
import { TOOL_CALL } from '../support/permit.ts'
import { CORPUS } from '../support/ssrf-corpus.ts'

const OPTIONS = { allowed_hosts: [], timeout_ms: 10_000, max_bytes: 1024 }
const NEVER = new AbortController().signal
const PATIENCE = { connectMs: 10_000, answerMs: 10_000 }

const UNREACHABLE = [{ type: 'text', text: 'The server could not be reached or broke off.' }]

/** What Node asks the system for, whoever asks: TCP connections and names. */
const asked = { connections: 0, names: 0 }
createHook({
  init(_id, type) {
    if (type === 'TCPCONNECTWRAP') asked.connections += 1
    if (type === 'GETADDRINFOREQWRAP' || type === 'QUERYWRAP') asked.names += 1
  },
}).enable()

const resolveCorpus: ResolveHost = (hostname) => {
  const found = CORPUS.find(({ url, resolves }) => resolves && new URL(url).hostname === hostname)
  if (!found?.resolves) throw new Error(`the name ${hostname} was asked for`)
  return Promise.resolve(found.resolves.map((address) => ({ address, family: 4 })))
}

const toLoopback: ResolveHost = () => Promise.resolve([{ address: '127.0.0.1', family: 4 }])

await t.test(
  'T16, threat 19: http.get opens no connection for any of the corpus, and asks DNS of names only',
  async (t) => {
    t.ok(CORPUS.length >= 120, `${CORPUS.length} URLs`)
    const fetch = httpGet(OPTIONS, resolveCorpus)
    for (const { url, resolves } of CORPUS) {
      const before = { ...asked }
      const { result, report } = await fetch(TOOL_CALL, { url }, NEVER)
      t.equal(result.isError, true, JSON.stringify(url))
      t.same(asked, before, 'nothing was asked of the system')
      if (resolves) {
        t.equal(report.reason, resolves.length > 0 ? 'address_refused' : 'unreachable', JSON.stringify(url))
        t.same(result.content, UNREACHABLE, 'a forbidden address reads like a name that has none')
      } else {
        t.not(report.reason, 'address_refused', 'refused before DNS')
      }
    }
  },
)

await t.test('threat 19: the count above would see a connection', async (t) => {
  const server = await listening(
    t,
    createServer((_req, res) => void res.end('here')),
  )
  const before = asked.connections
  const agent = egressAgent({ ...PATIENCE, allowPrivate: true })
  await (await agent.request({ origin: server, path: '/', method: 'GET' })).body.text()
  t.equal(asked.connections, before + 1)
  await agent.close()
})

await t.test('threat 19: no redirect leads where a first request may not go', async (t) => {
  for (const { url, resolves } of CORPUS) {
    // A name is judged by what it resolves to, when the agent connects.
    if (resolves) continue
    for (const current of ['http://farm.example/', 'https://farm.example/a/b?c']) {
      t.throws(() => nextHop(new URL(current), url, []), FetchFailure, JSON.stringify(url))
    }
  }
})

await t.test('threat 19: what is refused is refused where the operator lists the very host', async (t) => {
  const names = [
    'localhost',
    '127.0.0.1',
    'metadata.google.internal',
    '169.254.169.254',
    '10.0.0.1',
    'intranet',
  ]
  const allowed = parseAllowedHosts(names)
  for (const name of names) t.throws(() => firstHop(`http://${name}/`, allowed), FetchFailure, name)
})

await t.test('threat 19: a redirect farm is left at the first bad turn, and reaches nothing', async (t) => {
  let reached = 0
  const secret = await listening(
    t,
    createServer((_req, res) => void res.end(String(++reached))),
  )
  const places = [...CORPUS.filter(({ resolves }) => !resolves).map(({ url }) => url), `${secret}/`]
  // A Location can carry nothing but what a header can.
  const sendable = places.filter((url) => /^[\x21-\x7e]+$/.test(url))
  const farm = await listening(
    t,
    createServer((req, res) => {
      const location = sendable[Number(req.url?.slice(1))] ?? '/'
      res.writeHead(302, { location, connection: 'close' }).end()
    }),
  )
  const { port } = new URL(farm)
  const allowed = parseAllowedHosts([`farm.example:${port}`, `127.0.0.1:${new URL(secret).port}`, '*.com'])
  const agent = egressAgent({ ...PATIENCE, allowPrivate: true, resolve: toLoopback })
  for (const [index, url] of sendable.entries()) {
    const before = asked.connections
    const { outcome, hops } = await fetchVia(agent, new URL(`http://farm.example:${port}/${index}`), {
      headers: {},
      maxBytes: 1024,
      allowed,
      signal: NEVER,
      authority: OWN_AUTHORITY,
    })
    t.ok(outcome instanceof FetchFailure, url)
    t.equal(hops.length, 1, 'no second hop was made')
    t.ok(asked.connections <= before + 1, 'nothing but the farm was connected to')
  }
  t.equal(reached, 0)
  await agent.close()
})

async function listening(t: Test, server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  // Proven: it listens on a port.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
