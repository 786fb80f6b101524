import { hash } from 'node:crypto'
import t from 'tap'
import { parseCheckpoint } from '../../../db/ledger/tree/checkpoint.ts'
import { parseNote, parseVerifierKey, verifyNoteSignature } from '../../../db/ledger/tree/note.ts'
import { parseTlogProof, provesLeaf } from '../../../db/ledger/tree/proofs.ts'
import { compactTree } from '../../../db/ledger/tree/walk.ts'
import { type Identity, sharedGateway, type TestGateway } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

async function chat(gateway: TestGateway, who: Identity, body: unknown = CHAT): Promise<string> {
  return String((await gateway.call(who, 'POST', '/v1/chat/completions', { body })).headers['x-request-id'])
}

const proofs = (gateway: TestGateway, who: Identity | null, id: string, headers = {}) =>
  gateway.call(who, 'GET', `/v1/audit/proofs/${id}`, { headers })

/** Asks until the rows of a call are sealed, its outcome too. */
const sealed = (gateway: TestGateway, who: Identity, id: string, rows = 2) =>
  eventually(
    () => proofs(gateway, who, id),
    ({ status, json }) => status === 200 && json.rows.length === rows,
  )

const SECRET = { 'x-admin-secret': 'correct-horse-battery' }

await t.test(
  'a caller proves offline that exactly its call was recorded, decision and outcome',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const id = await chat(gateway, bot)
    const soon = await proofs(gateway, bot, id)
    if (soon.status === 404) {
      t.equal(soon.json.error.code, 'not_sealed_yet')
      t.equal(soon.headers['retry-after'], '1')
    }
    const { json } = await sealed(gateway, bot, id)
    const key = parseVerifierKey((await gateway.call(bot, 'GET', '/v1/audit/key')).text)
    t.match(key.name, /^[^/]+\/acme\/audit$/)
    const statuses = json.rows.map(({ leaf, proof, stream, seq }: Record<string, string>) => {
      const parsed = parseTlogProof(proof ?? '')
      t.ok(provesLeaf(parsed, leaf ?? ''))
      t.notOk(provesLeaf(parsed, (leaf ?? '').replace('acme', 'acne')))
      t.ok(verifyNoteSignature(parsed.note, key).good)
      t.equal(parsed.checkpoint.origin, key.name)
      const row = JSON.parse(leaf ?? '')
      t.same([row.stream, row.seq, row.request_id], [stream, seq, id])
      return row.status
    })
    t.same(statuses, ['allowed', 'success'])
    const { detail } = JSON.parse(json.rows[0].leaf)
    const salt = Buffer.from(json.salts.body_sha256, 'hex')
    t.equal(hash('sha256', Buffer.concat([salt, Buffer.from(JSON.stringify(CHAT))])), detail.body_sha256)
  },
)

await t.test(
  "another's proof is not there for who asks; an operator with admin.audit reads any",
  async (t) => {
    const gateway = await sharedGateway(t)
    const [bot, other] = [
      await gateway.enroll('bot', ['llm.chat']),
      await gateway.enroll('other', ['llm.chat']),
    ]
    const id = await chat(gateway, bot)
    const own = await sealed(gateway, bot, id)
    const foreign = await proofs(gateway, other, id)
    t.equal(foreign.status, 404)
    t.equal(foreign.json.error.code, 'not_found')
    t.equal((await proofs(gateway, other, 'req_00000000000000000000000000000000')).status, 404)
    t.equal((await proofs(gateway, null, id)).status, 401)
    const asOperator = await proofs(gateway, null, id, SECRET)
    t.same(
      asOperator.json.rows.map(({ leaf }: { leaf: string }) => leaf),
      own.json.rows.map(({ leaf }: { leaf: string }) => leaf),
    )
    t.equal((await proofs(gateway, null, id, { 'x-admin-secret': 'wrong-horse-battery' })).status, 403)
  },
)

await t.test(
  'the checkpoint is the root of all rows before it, and any that was signed is served again',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const id = await chat(gateway, bot)
    await sealed(gateway, bot, id)
    const ask = (path: string) => gateway.call(bot, 'GET', `/v1/audit/${path}`)
    const newest = await ask('checkpoint')
    t.match(newest.headers['content-type'], /^text\/plain; charset=utf-8/)
    const { size, root } = parseCheckpoint(parseNote(newest.text).text)
    const tree = compactTree()
    const lines = (await gateway.admin('GET', '/v1/admin/audit/export')).text.trimEnd().split('\n')
    for (const line of lines.slice(0, size)) {
      const entry = await entryOf(gateway, tree.size)
      t.equal(hash('sha256', entry), JSON.parse(line).row_hash)
      tree.add(entry)
    }
    t.same(tree.root(), root)
    t.equal((await ask(`checkpoint?size=${size}`)).text, newest.text)
    t.equal((await ask(`checkpoint?size=${size + 1_000}`)).status, 404)
    t.equal((await ask('checkpoint?size=0x1')).status, 404)
  },
)

/** One leaf out of a bundle of entries, as an operator reads it. */
async function entryOf(gateway: TestGateway, index: number): Promise<Buffer> {
  const path = `/v1/audit/tile/entries/000.p/${index + 1}`
  const bundle = await gateway.call(null, 'GET', path, { headers: SECRET })
  // The last of the bundle: the caller has no bytes, so by the text, which is UTF-8.
  const text = bundle.text
  const at = text.lastIndexOf('{"action"')
  return Buffer.from(text.slice(at))
}

await t.test('tiles are at the paths of C2SP and nowhere else, and are kept for ever', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await sealed(gateway, bot, await chat(gateway, bot))
  const ask = (path: string) => gateway.call(bot, 'GET', `/v1/audit/tile/${path}`)
  const one = await ask('0/000.p/1')
  t.equal(one.status, 200)
  t.match(one.headers['cache-control'], /immutable/)
  t.equal(Number(one.headers['content-length']), 32)
  for (const path of [
    ...['0/000', '0/0.p/1', '00/000.p/1', '0/000.p/0', '0/000.p/01', '0/000.p/256', '0/001.p/1', '7/000.p/1'],
    ...['0/x000/000.p/1', '0/000.p/255', '-1/000.p/1', 'x/000.p/1', '0/x001/000.p/1', '0/000.p/1/2'],
  ])
    t.equal((await ask(path)).status, 404, path)
  const entries = await ask('entries/000.p/1')
  t.equal(entries.status, 403)
  t.equal(entries.json.error.details.required_capability, 'admin.audit')
})

await t.test(
  'the key of the log is rotated by an operator, is a row, and both keys sign what follows',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const key = async () => parseVerifierKey((await gateway.call(bot, 'GET', '/v1/audit/key')).text)
    const before = await key()
    const answer = await gateway.admin('POST', '/v1/admin/audit-key/rotate')
    t.equal(answer.status, 200)
    const after = await key()
    t.same([after.name, parseVerifierKey(answer.json.key).id], [before.name, after.id])
    t.not(after.id, before.id)
    t.equal((await gateway.call(bot, 'POST', '/v1/admin/audit-key/rotate')).status, 403)
    const { json } = await sealed(gateway, bot, await chat(gateway, bot))
    const { note } = parseTlogProof(json.rows[1].proof)
    t.ok(verifyNoteSignature(note, before).good)
    t.ok(verifyNoteSignature(note, after).good)
    const [row] = (await gateway.rows()).filter(({ action }) => action === 'audit.key_rotated')
    t.match(row, { principal_id: 'admin', detail: { vkey: answer.json.key, via: 'secret' } })
  },
)
