import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { parseVerifierKey, verifyNoteSignature } from '../../../db/ledger/tree/note.ts'
import { parseSignedCheckpoints, type SignedCheckpoint } from '../../../db/ledger/tree/trusted.ts'
import { type Json, scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { signer } from '../../support/sealed-log.ts'
import { eventually } from '../../support/settled.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

const files = (...anchors: readonly object[]) => ({
  '45-proofs.yaml': `plugin: proofs\nseal_interval_ms: 100\nanchors: ${JSON.stringify(anchors)}\n`,
})

/** A server on this machine that answers as told, and what it was sent. */
async function listener(
  t: Test,
  answer: (body: string, path: string) => { status: number; body?: string | Buffer },
) {
  const sent: string[] = []
  const server = createServer((req, res) => {
    void buffer(req).then((bytes) => {
      const body = bytes.toString()
      sent.push(body)
      const { status, body: said = '' } = answer(body, req.url ?? '')
      res.writeHead(status).end(said)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, sent }
}

const kept = async (path: string): Promise<readonly SignedCheckpoint[]> =>
  parseSignedCheckpoints(await readFile(path, 'utf8').catch(() => ''))

const ready = async (gateway: TestGateway): Promise<Json> =>
  (await gateway.call(null, 'GET', '/ready')).json.checks

await t.test(
  'checkpoints are appended to a file on another volume, and a half-written one is passed over',
  async (t) => {
    const path = join(await scratch(t), 'anchor')
    await writeFile(path, 'example.org/acme/au')
    const gateway = await testGateway(t, { files: files({ file: path }) })
    const first = await eventually(
      () => kept(path),
      (all) => all.length > 0,
    )
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const all = await eventually(
      () => kept(path),
      (found) => found.length > first.length,
    )
    const sizes = all.map(({ size }) => size)
    t.same(
      sizes,
      sizes.toSorted((one, other) => one - other),
    )
    const key = parseVerifierKey((await gateway.call(bot, 'GET', '/v1/audit/key')).text)
    for (const { note } of all) t.ok(verifyNoteSignature(note, key).good)
    t.same(await ready(gateway), { database: 'ok', audit: 'ok', ca: 'ok', plugins: 'ok', providers: 'ok' })
  },
)

await t.test(
  'a URL is sent each newest checkpoint until it takes one, and holds no call up meanwhile',
  async (t) => {
    let status = 500
    const { url, sent } = await listener(t, () => ({ status }))
    const gateway = await testGateway(t, { files: files({ url: `${url}/log` }) })
    await eventually(
      () => sent.length,
      (count) => count > 0,
    )
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const metrics = async () => (await gateway.admin('GET', '/metrics')).text
    t.match(
      await eventually(metrics, (text) => /anchor_failures_total\{anchor="url/.test(text)),
      /anchor_failures_total\{anchor="url:/,
    )
    status = 204
    const before = sent.length
    await eventually(
      () => sent.length,
      (count) => count > before,
    )
    t.match(parseSignedCheckpoints(sent.at(-1) ?? ''), [{ origin: /\/acme\/audit$/ }])
  },
)

await t.test(
  'F-40 boot refuses to go on behind an anchor, and begins a log of a new name where that is accepted',
  async (t) => {
    const path = join(await scratch(t), 'anchor')
    const gateway = await testGateway(t, { files: files({ file: path }), verify: false })
    const [{ origin, size } = { origin: '', size: 0 }] = await eventually(
      () => kept(path),
      (all) => all.length > 0,
    )
    await gateway.close(0)
    const newest = (await kept(path)).at(-1)
    // Another machine's memory of rows that are not here any more: signed by nobody that is asked here.
    const thief = signer(origin)
    const { checkpointOver } = await import('../../support/sealed-log.ts')
    const beyond = checkpointOver(
      Array.from({ length: (newest?.size ?? size) + 5 }, (_, row) => `row ${row}`),
      thief,
    )
    await appendFile(path, `\n${beyond}`)
    const { startGateway } = await import('../../../proxy/wiring/gateway.ts')
    const options = { env: {}, logTo: { write: () => true } as never }
    await t.rejects(startGateway(gateway.settings, options), {
      message: new RegExp(
        `^the anchor file:.* has a checkpoint of ${(newest?.size ?? 0) + 5} rows that does not fit this log`,
      ),
    })
    const again = await startGateway(gateway.settings, { ...options, acceptRollback: 'the disk was lost' })
    const anew = await eventually(
      () => kept(path),
      (all) => all.at(-1)?.origin === `${origin}/2`,
    )
    t.equal(anew.at(-1)?.origin, `${origin}/2`)
    await again.close(0)
    const rows = await gateway.rows({ order: 'asc', limit: 1000 })
    t.match(
      rows.filter(({ action }) => action === 'audit.rollback_accepted'),
      [{ principal_id: /^socket:/, detail: { reason: 'the disk was lost', origin: `${origin}/2` } }],
    )
    const once = await startGateway(gateway.settings, options)
    await once.close(0)
  },
)

await t.test(
  'a token in the URL of an anchor that echoes it is in no line, metric, row or page',
  async (t) => {
    const token = 'the-token-of-the-operator'
    const asked: string[] = []
    const { url } = await listener(t, (_, path) => {
      asked.push(path)
      return { status: [500, 200, 404][asked.length % 3] ?? 500, body: `no ${path} ${token}` }
    })
    const gateway = await testGateway(t, {
      files: files({ url: `${url}/log?token=${token}` }, { timestamp: `${url}/tsa?key=a&token=${token}` }),
    })
    const failures = async () =>
      (await gateway.admin('GET', '/metrics')).text
        .split('\n')
        .filter((line) => line.startsWith('sallyport_audit_anchor_failures_total{'))
    // The log may have been told well of the first time; the authority's answer is never a stamp.
    const told = await eventually(
      failures,
      (lines) =>
        lines.some((line) => line.includes('timestamp:')) && asked.some((path) => /^.log/.test(path)),
    )
    t.match(told.join('\n'), /anchor="timestamp:http:\/\/127[^"?]*\/tsa\?[0-9a-f]{12}"/)
    t.ok(
      ['/log', '/tsa'].every((path) =>
        asked.some((one) => one.startsWith(`${path}?`) && one.endsWith(token)),
      ),
      'it was asked with it',
    )
    const pages = await Promise.all(
      ['/v1/admin/audit?limit=50', '/v1/admin/status', '/metrics'].map((path) => gateway.admin('GET', path)),
    )
    const all = [...gateway.log.map((line) => JSON.stringify(line)), ...pages.map(({ text }) => text)].join(
      '\n',
    )
    t.match(all, 'a checkpoint could not be anchored')
    t.notMatch(all, token)
  },
)

await t.test('a file that says what is no anchor is refused with its place', async (t) => {
  for (const [anchor, said] of [
    [{ url: 'http://example.org/' }, /must be an https URL/],
    [{ file: '/a', url: 'https://example.org' }, /must name one of file, url, witness, timestamp/],
    [{ witness: 'https://example.org' }, /a witness needs its key/],
    [
      { witness: 'https://example.org/?log=1', key: 'nonsense' },
      /must have no query: paths are joined to it/,
    ],
    [{ timestamp: 'https://user:secret@example.org/tsr' }, /must be an https URL, .* without credentials/],
    [{ timestamp: 'https://example.org/tsr#1' }, /must be an https URL, .* without credentials or fragment/],
    [{ witness: 'https://example.org', key: 'nonsense' }, /must be the verifier key of a witness/],
    [{ telegram: 'x' }, /telegram/],
  ] as const)
    await t.rejects(testGateway(t, { files: files(anchor) }), { message: said })
})
