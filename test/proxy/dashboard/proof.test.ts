import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { asOwner } from '../../support/db/owner.ts'
import { scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { sallyport } from '../../support/run.ts'
import { eventually } from '../../support/settled.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

const anchored = (...anchors: readonly object[]) => ({
  '45-proofs.yaml': `plugin: proofs\nseal_interval_ms: 100\nanchors: ${JSON.stringify(anchors)}\n`,
})

const log = async (gateway: TestGateway) => (await gateway.admin('GET', '/v1/admin/log')).json

/** The token of the forms of a page. */
const csrfIn = (text: string): string => /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? ''

/** Somewhere on this machine that takes no checkpoint. */
async function refusing(t: Test): Promise<string> {
  const server = createServer((_req, res) => res.writeHead(500).end())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

await t.test(
  'Proof shows the checkpoint, its key and its anchors, as the API and the log itself say them',
  async (t) => {
    const path = join(await scratch(t), 'anchor')
    const gateway = await testGateway(t, { files: anchored({ file: path }) })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const kept = await eventually(
      () => log(gateway),
      ({ anchors, unsealed }) => anchors[0].size > 0 && unsealed === 0,
    )
    t.match(kept, { anchors: [{ anchor: `file:${path}`, error: null, late: false }] })
    t.equal(kept.log.key, (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim())
    const checkpoint = (await gateway.call(bot, 'GET', `/v1/audit/checkpoint?size=${kept.log.size}`)).text
    t.same(checkpoint.split('\n').slice(0, 3), [kept.log.origin, String(kept.log.size), kept.log.root])
    const jar = await signedInBySecret(gateway)
    const page = (await jar.ask('GET', '/proxy/proof')).text
    for (const said of [kept.log.key.replaceAll('+', '+'), kept.log.origin, `file:${path}`])
      t.ok(page.includes(said), said)
    t.match(page, new RegExp(`Seen outside</dt><dd>by file:${path} \\([\\d,]+ rows\\)</dd>`))
    t.match(page, /ledger \d+ <code>[0-9a-f]{8}<\/code> .*anchored <time/, 'in the head of every page')
    t.match(page, /Operators’ sign-ins<\/h2>.*admin\.sign_in</s)
  },
)

await t.test(
  'the whole ledger is verified with its progress, and the page comes whole behind it',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    const csrf = csrfIn((await jar.ask('GET', '/proxy/proof')).text)
    const done = await jar.send('/proxy/proof/verify', { csrf })
    t.equal(done.status, 200)
    const [, rows = ''] = /Whole: ([\d,]+) rows were recomputed/.exec(done.text) ?? []
    t.ok(Number(rows) > 1)
    t.match(done.text, /matches its hash\. Seen by nobody outside\./)
    t.match(done.text, /State of the ledger.*<\/html>/s)
    t.equal((await jar.send('/proxy/proof/verify', { csrf: 'another' })).status, 403)
    const told = await gateway.admin('POST', '/v1/admin/audit/verify', undefined, {
      accept: 'application/x-ndjson',
    })
    t.match(JSON.parse(told.text.trim().split('\n').at(-1) ?? ''), { ok: true })
  },
)

await t.test('a call’s page has its leaf, its proof and its receipt, which anybody verifies', async (t) => {
  const gateway = await testGateway(t, { files: anchored() })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const body = JSON.stringify(CHAT)
  const called = await gateway.call(bot, 'POST', '/v1/chat/completions', {
    body,
    headers: { 'content-type': 'application/json' },
  })
  const id = String(called.headers['x-request-id'])
  const jar = await signedInBySecret(gateway)
  const page = await eventually(
    async () => (await jar.ask('GET', `/proxy/activity/${id}`)).text,
    (text) => (text.match(/c2sp\.org\/tlog-proof@v1/g) ?? []).length === 2,
  )
  t.match(page, /&quot;action&quot;:&quot;egress_llm_chat&quot;/, 'the exact bytes')
  const [, link = ''] = /href="([^"]+)" download="req_[^"]+\.json"/.exec(page) ?? []
  t.equal(link, `/v1/audit/proofs/${id}`)
  const receipt = await jar.ask('GET', link)
  t.equal(receipt.status, 200)
  const directory = await scratch(t)
  const [file, sent, other] = ['receipt.json', 'sent', 'other'].map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ]
  await writeFile(file, receipt.text)
  await writeFile(sent, body)
  await writeFile(other, `${body} `)
  const { key } = (await log(gateway)).log
  const verify = allVerifiers(t)
  t.match(await verify(file, '--key', key, '--body', sent), {
    code: 0,
    last: 'VERIFIED, SEEN by nobody outside',
  })
  t.match(await verify(file, '--key', key, '--body', other), { code: 2 })
})

await t.test('an anchor that takes nothing is late on every page, in Attention and in /ready', async (t) => {
  const url = await refusing(t)
  let later = 0
  const gateway = await testGateway(t, {
    files: anchored({ url }),
    clock: () => Date.now() + later,
  })
  await eventually(
    () => log(gateway),
    ({ log: sealed, anchors }) => sealed !== null && anchors[0].error !== null,
  )
  const pages = async (): Promise<readonly string[]> => {
    const jar = await signedInBySecret(gateway)
    return Promise.all(
      ['/proxy', '/proxy/proof', '/proxy/tools'].map(async (path) => (await jar.ask('GET', path)).text),
    )
  }
  for (const page of await pages()) t.notMatch(page, /badge warn">late/)
  later = 180_000
  for (const page of await pages())
    t.match(page, /anchored <span class="faint">never<\/span> <span class="badge warn">late/)
  const [attention = '', proof = ''] = await pages()
  t.match(attention, /1 anchor is late/)
  t.ok(attention.includes(`url:${url}`))
  t.match(proof, /it answered 500/)
  t.match((await gateway.call(null, 'GET', '/ready')).json.checks, { anchors: 'late' })
  t.match((await gateway.admin('GET', '/metrics')).text, /^sallyport_audit_anchors_late 1$/m)
})

await t.test(
  'a tree that was set back is told in /ready, in Attention, on Proof, by receipts and metrics, and found by verify',
  async (t) => {
    const gateway = await testGateway(t, { files: anchored(), verify: false })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await eventually(
      () => log(gateway),
      ({ log: sealed, unsealed }) => sealed !== null && unsealed === 0,
    )
    const ready = async () => (await gateway.call(null, 'GET', '/ready')).json
    t.notOk((await ready()).checks.sealing)
    await asOwner(gateway.settings.databaseUrl, 'update audit_trees set size = size - 1')
    const called = await gateway.call(bot, 'POST', '/v1/chat/completions', {
      body: JSON.stringify(CHAT),
      headers: { 'content-type': 'application/json' },
    })
    t.match(await eventually(ready, ({ checks }) => checks.sealing === 'stopped'), { status: 'ready' })
    const id = String(called.headers['x-request-id'])
    const receipt = await gateway.call(bot, 'GET', `/v1/audit/proofs/${id}`)
    t.match(receipt, { status: 503, json: { error: { code: 'sealing_stopped' } } })
    t.equal((await log(gateway)).sealing_stopped, true)
    t.match((await gateway.admin('GET', '/metrics')).text, /^sallyport_audit_sealing_stopped 1$/m)
    const jar = await signedInBySecret(gateway)
    for (const [path, said] of [
      ['/proxy', /The ledger is not sealed any more/],
      ['/proxy/proof', /Sealing has stopped/],
      [`/proxy/activity/${id}`, /Not sealed yet: sealing has stopped/],
    ] as const)
      t.match((await jar.ask('GET', path)).text, said, path)
    await gateway.close(0)
    const found = await sallyport(['verify', gateway.settings.databaseUrl])
    t.match(found, { code: 3, out: /^BAD: the tree says \d+ rows, its newest checkpoint \d+/m })
  },
)

await t.test(
  'a period that was reviewed is one row, and a checkpoint that was never signed is none',
  async (t) => {
    const gateway = await testGateway(t, { files: anchored() })
    const jar = await signedInBySecret(gateway)
    const { size } = (
      await eventually(
        () => log(gateway),
        ({ log: sealed }) => sealed !== null,
      )
    ).log
    const csrf = csrfIn((await jar.ask('GET', '/proxy/proof')).text)
    const form = { csrf, since: '2026-10-01', until: '2027-01-01', checkpoint: String(size), note: 'Q4' }
    t.equal((await jar.send('/proxy/proof/reviewed', form)).headers.location, '/proxy/proof?notice=reviewed')
    for (const [wrong, status] of [
      [{ ...form, until: '2026-01-01' }, 422],
      [{ ...form, since: 'yesterday' }, 422],
      [{ ...form, checkpoint: '1000000' }, 404],
      [{ ...form, csrf: 'another' }, 403],
    ] as const)
      t.equal((await jar.send('/proxy/proof/reviewed', wrong)).status, status)
    const rows = (await gateway.rows()).filter(({ action }) => action === 'audit.reviewed')
    t.match(rows, [{ detail: { since: '2026-10-01T00:00:00.000Z', checkpoint: { size }, note: 'Q4' } }])
    t.equal(rows.length, 1)
    const part = await jar.ask('GET', '/v1/admin/audit/evidence?since=2026-10-01&until=2100-01-01')
    t.match(part.headers, { 'content-type': 'application/zip' })
    t.equal((await new Jar(gateway).ask('GET', '/v1/admin/audit/evidence')).status, 403)
    const download = (query: string) => jar.ask('GET', `/proxy/proof/evidence${query}`)
    const zip = await download('?since=2026-10-01&until=2100-01-01')
    t.match(zip.headers, { 'content-type': 'application/zip', 'content-disposition': /evidence\.zip/ })
    t.same(zip.bytes.subarray(0, 2).toString(), 'PK')
    for (const wrong of ['?since=2026-10-01&until=2026-09-01', '?since=tomorrow']) {
      const page = await download(wrong)
      t.equal(page.status, 422, wrong)
      t.match(page.text, /class="problem".*<h2>For an auditor<\/h2>/s, 'the page says it, and is whole')
    }
    t.match((await new Jar(gateway).ask('GET', '/proxy/proof/evidence')).headers.location, /sign-in/)
  },
)
