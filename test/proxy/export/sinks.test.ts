import { once } from 'node:events'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { type TLSSocket, createServer as tlsServer } from 'node:tls'
import t, { type Test } from 'tap'
import { fileSink } from '../../../proxy/export/file-sink.ts'
import { pageWriter } from '../../../proxy/export/format.ts'
import { httpsSink } from '../../../proxy/export/https-sink.ts'
import { exportOptions } from '../../../proxy/export/options.ts'
import { syslogFrame } from '../../../proxy/export/syslog-frame.ts'
import { SyslogSink } from '../../../proxy/export/syslog-sink.ts'
import { ledgerLines, pageOf } from '../../support/export/lines.ts'
import { trusted } from '../../support/llm/trusted.ts'
import { eventually } from '../../support/settled.ts'

const NEVER = new AbortController().signal
const linesIn = (path: string) => readFileSync(path, 'utf8').split('\n')

t.test(
  'a file gets whole lines, also after it was moved away, and behind one that a crash has cut',
  async (t) => {
    const folder = t.testdir({})
    const path = join(folder, 'rows.ndjson')
    const sink = fileSink(path)
    await sink.send(pageOf(ledgerLines(1, 2)), NEVER)
    renameSync(path, `${path}.1`)
    await sink.send(pageOf(ledgerLines(3, 1)), NEVER)
    t.equal(linesIn(`${path}.1`).length, 3, 'the file before gets no more')
    t.equal(JSON.parse(linesIn(path)[0] ?? '').seq, 3)
    writeFileSync(path, '{"action":"egr')
    await sink.send(pageOf(ledgerLines(3, 1)), NEVER)
    t.equal(JSON.parse(linesIn(path)[1] ?? '').seq, 3, 'the row is whole behind what was left')
    await t.rejects(fileSink(folder).send(pageOf(ledgerLines(1, 1)), NEVER))
    await t.rejects(fileSink('/dev/null').send(pageOf(ledgerLines(1, 1)), NEVER), /no regular file/)
    await t.rejects(fileSink(join(folder, 'none', 'x')).send(pageOf(ledgerLines(1, 1)), NEVER), {
      code: 'ENOENT',
    })
  },
)

async function httpsServer(t: Test, answer: RequestListener): Promise<string> {
  const server = createServer(await trusted(t), answer)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`
}

t.test(
  'https: 2xx takes a page; slow, endless, redirecting, failing and huge answers are cut and named',
  async (t) => {
    const got: { headers: unknown; body: string }[] = []
    const asked: (string | undefined)[] = []
    const url = await httpsServer(t, (req, res) => {
      asked.push(req.url)
      void buffer(req).then((bytes) => {
        got.push({ headers: req.headers, body: bytes.toString() })
        if (req.url === '/ok?source=x') return res.writeHead(204).end()
        if (req.url === '/redirect') return res.writeHead(302, { location: '/ok' }).end()
        if (req.url === '/broken') return res.writeHead(500).end('x'.repeat(1_000_000))
        if (req.url === '/huge') return res.writeHead(200).end('x'.repeat(1_000_000))
        if (req.url === '/endless') {
          const timer = setInterval(() => res.write('x'), 5)
          return res.on('close', () => clearInterval(timer))
        }
        if (req.url === '/closes') return req.socket.destroy()
        return undefined
      })
    })
    const send = async (path: string, ms?: number): Promise<void> => {
      const sink = httpsSink({ url: `${url}${path}`, headers: { Authorization: 'Splunk s3cret' } }, ms)
      try {
        await sink.send(pageOf(ledgerLines(1, 3)), NEVER)
      } finally {
        await sink.close()
      }
    }
    await send('/ok?source=x')
    t.match(got[0], { headers: { authorization: 'Splunk s3cret', 'content-type': 'application/x-ndjson' } })
    t.same(
      got[0]?.body
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).seq),
      [1, 2, 3],
    )
    await t.rejects(send('/redirect'), { message: /answered 302, and redirects are not followed/ })
    await t.rejects(send('/broken'), { message: /127\.0\.0\.1:\d+ answered 500$/ })
    await t.rejects(send('/huge'), { message: /answered more than 65536 bytes/ })
    await t.rejects(send('/endless', 200), { message: /has not answered within 0\.2 s/ })
    await t.rejects(send('/silent', 200), { message: /has not answered within 0\.2 s/ })
    await t.rejects(send('/closes'))
    t.notOk(asked.includes('/ok'), 'nobody is sent to where a redirect points')
    const metadata = httpsSink({ url: 'https://169.254.169.254/', headers: {} })
    await t.rejects(metadata.send(pageOf(ledgerLines(1, 1)), NEVER), /is refused/)
    await metadata.close()
  },
)

/** A server of syslog over TLS, which takes frames apart by their lengths (RFC 5425 §4.3). */
async function syslogServer(t: Test) {
  const messages: string[] = []
  const sockets: TLSSocket[] = []
  const server = tlsServer(await trusted(t), (socket) => {
    sockets.push(socket)
    let rest = Buffer.alloc(0)
    socket.on('error', () => {})
    socket.on('data', (bytes: Buffer) => {
      rest = Buffer.concat([rest, bytes])
      for (;;) {
        const space = rest.indexOf(0x20)
        const length = Number(rest.subarray(0, Math.max(0, space)).toString())
        if (space < 1 || rest.length < space + 1 + length) return
        messages.push(rest.subarray(space + 1, space + 1 + length).toString())
        rest = rest.subarray(space + 1 + length)
      }
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, messages, sockets }
}

t.test(
  'syslog: frames by RFC 5425, and what was sent before a broken connection is sent again',
  async (t) => {
    const { port, messages, sockets } = await syslogServer(t)
    const sink = new SyslogSink({ host: '127.0.0.1', port })
    await sink.send(pageOf(ledgerLines(1, 2)), NEVER)
    await sink.send(pageOf(ledgerLines(3, 2)), NEVER)
    await eventually(
      () => messages.length,
      (count) => count === 4,
    )
    t.match(messages[0], /^<110>1 2026-01-02T03:04:05\.006Z \S+ sallyport \d+ egress_llm_chat - \{"action":/)
    t.equal(sink.doubtful().size, 0)
    sockets[0]?.destroy()
    const doubtful = await eventually(
      () => sink.doubtful(),
      ({ size }) => size > 0,
    )
    t.same([...doubtful], [['main', 0]], 'all of it is in doubt')
    await sink.send(pageOf(ledgerLines(1, 4)), NEVER)
    await eventually(
      () => messages.length,
      (count) => count === 8,
    )
    sockets[1]?.destroy()
    await eventually(
      () => sink.send(pageOf(ledgerLines(5, 1)), NEVER).then(() => '', String),
      (said) => said !== '',
    )
    await t.rejects(sink.send(pageOf(ledgerLines(5, 1)), NEVER), /what was sent shortly before is sent again/)
    await sink.close()
  },
)

t.test('syslog: a server that is another, or takes nothing, is cut and named', async (t) => {
  const { port } = await syslogServer(t)
  const other = new SyslogSink({ host: 'localhost', port })
  await t.rejects(other.send(pageOf(ledgerLines(1, 1)), NEVER), 'its certificate names 127.0.0.1 alone')
  const silent = tlsServer(await trusted(t), (socket) => void socket.on('error', () => {}).pause())
  await once(silent.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => silent.close())
  const sink = new SyslogSink({ host: '127.0.0.1', port: (silent.address() as AddressInfo).port }, 300)
  const much = ledgerLines(1, 1).map((row) => ({ ...row, line: 'x'.repeat(32_000_000) }))
  await t.rejects(sink.send(pageOf(much), NEVER), { message: /127\.0\.0\.1 takes no more/ })
  await sink.close()
})

t.test('a length in a frame is of bytes, and a name of an action is cut at 32 characters', (t) => {
  const [row = { stream: '', seq: 0, line: '' }] = ledgerLines(1, 1, 'mcp_resources_templates_list_and_more')
  const frame = syslogFrame(row, '{"é":1}', { hostname: 'h', pid: 1 })
  const [, length = '', message = ''] = /^(\d+) (.*)$/s.exec(frame) ?? []
  t.equal(Buffer.byteLength(message), Number(length))
  t.match(message, / mcp_resources_templates_list_and - /)
  t.end()
})

t.test('actions choose rows, and either format has a line for each', async (t) => {
  const page = [
    ...ledgerLines(1, 2),
    ...ledgerLines(3, 1, 'mcp_tools_call'),
    ...ledgerLines(4, 1, 'admin.sign_in'),
  ]
  const seqs = async (actions: string[] | undefined, format: 'ndjson' | 'ocsf') => {
    const written = await pageWriter({ format, ...(actions && { actions }) })(page)
    t.equal(written.lines.length, written.rows.length)
    return written.rows.map(({ seq }) => seq)
  }
  t.same(await seqs(undefined, 'ndjson'), [1, 2, 3, 4])
  t.same(await seqs(['mcp_*', 'admin.*'], 'ocsf'), [3, 4])
  t.same(await seqs(['egress_llm_chat'], 'ndjson'), [1, 2])
  t.same(await seqs(['none'], 'ocsf'), [])
  const spoiled = [{ stream: 'main', seq: 9, line: '{"action":"x","detail":nothing}' }]
  await t.rejects(pageWriter({ format: 'ocsf' })(spoiled), /the row main:9 is no JSON: verify the ledger/)
})

t.test('85-export.yaml: what it cannot mean is refused', (t) => {
  const accepts = (...sinks: object[]) => exportOptions.safeParse({ sinks }).success
  const lake = { name: 'lake', kind: 'file', path: '/var/log/rows.ndjson' }
  const splunk = { name: 'splunk', kind: 'https', url: 'https://splunk.example/services/collector/raw' }
  t.ok(accepts(lake, splunk, { name: 'old', kind: 'syslog', host: 'siem.example' }))
  t.notOk(accepts(lake, lake), 'two of a name')
  t.notOk(accepts({ ...lake, path: 'rows.ndjson' }))
  t.notOk(accepts({ ...lake, name: 'La Ke' }))
  t.notOk(accepts({ ...splunk, url: 'http://splunk.example/' }))
  t.notOk(accepts({ ...splunk, url: 'https://user:word@splunk.example/' }))
  t.notOk(accepts({ ...splunk, headers: { host: 'other' } }))
  t.notOk(accepts({ ...splunk, headers: { 'x-a': 'two\r\nlines' } }))
  t.notOk(accepts({ ...splunk, actions: [] }))
  t.notOk(accepts({ ...splunk, format: 'cef' }))
  t.end()
})
