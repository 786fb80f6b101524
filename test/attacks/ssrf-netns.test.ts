import { spawnSync } from 'node:child_process'
import { subscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import type { Socket } from 'node:net'
import t from 'tap'
import { request } from 'undici'
import type { ResolveHost } from '../../proxy/egress/agent.ts'
import { httpGet } from '../../proxy/mcp/http-get/tool.ts'
import { TOOL_CALL } from '../support/permit.ts'
import { CORPUS } from '../support/ssrf-corpus.ts'

/**
 * Run again inside a network namespace of its own, where this file owns every address: a metadata service
 * that answers, a public web server, and the kernel's own count of what left. Skipped where such a namespace
 * cannot be made.
 */
const INSIDE = 'SSRF_TEST_INSIDE_NAMESPACE'
const METADATA = '169.254.169.254'
const PUBLIC = '93.184.216.34'
const OPTIONS = { allowed_hosts: [], timeout_ms: 10_000, max_bytes: 1024 }
const NEVER = new AbortController().signal

async function outside(): Promise<void> {
  const root = process.getuid?.() === 0
  const lines = [
    'ip link set lo up',
    ...[METADATA, PUBLIC].map((address) => `ip address add ${address}/32 dev lo`),
  ]
  const run = (script: string) =>
    spawnSync('unshare', [root ? '-n' : '-rn', 'sh', '-ec', script], {
      encoding: 'utf8',
      env: { ...process.env, [INSIDE]: '1' },
    })
  const possible = run(lines.join('\n')).status === 0
  await t.test(
    'threat 19: not one packet leaves for a forbidden address, by the kernel’s count',
    {
      skip: possible ? false : 'no network namespace can be made here',
    },
    (t) => {
      const { status, stdout, stderr } = run(
        [...lines, `exec "${process.execPath}" "${import.meta.filename}"`].join('\n'),
      )
      t.equal(status, 0, 'all tests inside the namespace pass')
      if (status !== 0) t.comment(`${stdout}\n${stderr}`)
      t.ok(/^ok 4 /m.test(stdout), 'and there are four')
      t.end()
    },
  )
}

async function inside(): Promise<void> {
  for (const channel of ['net.client.socket', 'net.server.socket']) subscribe(channel, remember)
  let leaked = 0
  const secret: RequestListener = (_req, res) => {
    leaked += 1
    res.setHeader('content-type', 'text/plain').end('secret')
  }
  const web: RequestListener = (req, res) => {
    const location = places[Number(req.url?.slice(1))]
    if (location === undefined) res.setHeader('content-type', 'text/plain').end('public')
    else res.writeHead(302, { location }).end()
  }
  const servers = await Promise.all([
    listening(secret, METADATA),
    listening(secret, '127.0.0.1'),
    listening(secret, '::1'),
    listening(web, PUBLIC),
  ])

  await t.test(
    'the services are there, http.get reaches the public one, and the kernel counts it',
    async (t) => {
      for (const host of [METADATA, '127.0.0.1', '[::1]']) {
        const { body } = await request(`http://${host}/`, { reset: true })
        t.equal(await body.text(), 'secret', host)
      }
      t.equal(leaked, 3)
      const before = sent()
      const { result } = await httpGet(OPTIONS)(TOOL_CALL, { url: `http://${PUBLIC}/page` }, NEVER)
      t.same(result.content, [{ type: 'text', text: 'HTTP 200 text/plain\n\npublic' }])
      t.ok(sent().packets > before.packets)
      t.equal(sent().connections, before.connections + 1)
    },
  )

  await t.test('zero packets for the corpus', async (t) => {
    const fetch = httpGet(OPTIONS, resolve)
    await quiet()
    for (const { url } of CORPUS) {
      const before = sent()
      const { result } = await fetch(TOOL_CALL, { url }, NEVER)
      t.equal(result.isError, true, JSON.stringify(url))
      t.same(sent(), before, 'nothing was sent')
    }
  })

  await t.test('a farm of redirects to the corpus: one connection each, and it is to the farm', async (t) => {
    const fetch = httpGet(OPTIONS, resolve)
    for (const [index, url] of places.entries()) {
      const { connections } = sent()
      const { result, report } = await fetch(TOOL_CALL, { url: `http://${PUBLIC}/${index}` }, NEVER)
      t.equal(result.isError, true, url)
      t.not(report.status, 200)
      t.equal(sent().connections, connections + 1)
    }
  })

  await t.test(
    'a name rebound from a public address to loopback gives the public page once, and then nothing',
    async (t) => {
      let asked = 0
      const fetch = httpGet(OPTIONS, () => {
        asked += 1
        return Promise.resolve([{ address: asked === 1 ? PUBLIC : '127.0.0.1', family: 4 }])
      })
      t.match((await fetch(TOOL_CALL, { url: 'http://rebind.example/page' }, NEVER)).report, {
        status: 200,
        bytes: 6,
      })
      t.match((await fetch(TOOL_CALL, { url: 'http://rebind.example/page' }, NEVER)).report, {
        range: 'loopback',
      })
      t.equal(asked, 2)
    },
  )

  t.equal(leaked, 3, 'nobody but this test saw the secret')
  for (const server of servers) server.close()
}

/** What a Location header can carry of the corpus. */
const places = CORPUS.map(({ url }) => url).filter((url) => /^[\x21-\x7e]+$/.test(url))

const resolve: ResolveHost = (hostname) => {
  const found = CORPUS.find(({ url, resolves }) => resolves && new URL(url).hostname === hostname)
  return Promise.resolve((found?.resolves ?? []).map((address) => ({ address, family: 4 })))
}

async function listening(answer: RequestListener, host: string) {
  const server = createServer({ keepAlive: false }, answer)
  await once(server.listen(80, host), 'listening')
  return server
}

const sockets = new Set<Socket>()

function remember(message: unknown): void {
  // Proven by the channels' documentation: they publish the socket.
  sockets.add((message as { socket: Socket }).socket)
}

/** Waits until both ends of every connection are closed, so that none of their packets is still to come. */
async function quiet(): Promise<void> {
  for (const socket of sockets) {
    if (!socket.closed) await new Promise<void>((resolve) => socket.once('close', () => resolve()))
  }
}

/** The namespace's own counts since it was made: TCP connections begun, IP packets handed to the network. */
function sent(): { connections: number; packets: number } {
  const four = readFileSync('/proc/self/net/snmp', 'utf8')
  const six = readFileSync('/proc/self/net/snmp6', 'utf8')
  const packets4 = column(four, 'Ip', 'OutRequests')
  const packets6 = Number(/^Ip6OutRequests\s+(\d+)/m.exec(six)?.[1])
  return { connections: column(four, 'Tcp', 'ActiveOpens'), packets: packets4 + packets6 }
}

function column(text: string, table: string, name: string): number {
  const [names = '', values = ''] = text.split('\n').filter((line) => line.startsWith(`${table}: `))
  return Number(values.split(' ')[names.split(' ').indexOf(name)])
}

if (process.env[INSIDE] === undefined) await outside()
else await inside()
