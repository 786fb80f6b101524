import { randomBytes } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { certifiedUser } from '../../support/certs/certified.ts'
import { type Identity, scratch, testGateway } from '../../support/gateway.ts'
import { sallyport } from '../../support/run.ts'
import { eventually } from '../../support/settled.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const BODY = JSON.stringify({ model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'of zoe alone' }] })
const FILES = { '45-proofs.yaml': 'plugin: proofs\nseal_interval_ms: 100\nanchors: []\n' }

await t.test(
  'docs/ledger.md#erasure every proof that held before a person was erased holds behind it, by every verifier',
  async (t) => {
    const gateway = await testGateway(t, { files: FILES })
    const verify = allVerifiers(t)
    const directory = await scratch(t)
    mkdirSync(directory, { recursive: true })
    const kept = (name: string, bytes: string | Buffer): string => {
      const path = join(directory, name)
      writeFileSync(path, bytes)
      return path
    }
    const name = `zoe-${randomBytes(6).toString('hex')}`
    const { who, ref } = await certifiedUser(t, gateway, { user_name: name })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const called = await gateway.call(who, 'POST', '/v1/chat/completions', {
      body: BODY,
      headers: { 'content-type': 'application/json' },
    })
    const id = String(called.headers['x-request-id'])
    const ask = (by: Identity | null, path: string) =>
      by ? gateway.call(by, 'GET', path) : gateway.admin('GET', path)
    const receiptOf = (by: Identity | null) =>
      eventually(
        () => ask(by, `/v1/audit/proofs/${id}`),
        ({ status, json }) => status === 200 && json.rows.length === 2,
      )
    const evidence = async () => (await gateway.admin('GET', '/v1/admin/audit/evidence')).bytes
    const exported = async () => (await gateway.admin('GET', '/v1/admin/audit/export')).text
    const tile = async () =>
      (await gateway.call(bot, 'GET', '/v1/audit/tile/0/000.p/5')).bytes.toString('hex')

    const receipt = await receiptOf(who)
    const key = ['--key', (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()]
    const checkpoint = [
      '--checkpoint',
      kept('checkpoint', (await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text),
    ]
    const body = ['--body', kept('body', BODY)]
    const before = {
      receipt: kept('receipt.json', receipt.text),
      pack: kept('before.zip', await evidence()),
      export: kept('before.ndjson', await exported()),
      tile: await tile(),
    }
    const whole = { code: 0, last: 'VERIFIED' }
    t.match(receipt.json.salts, { body_sha256: /^[0-9a-f]{32}$/ })
    t.match(await verify(before.receipt, ...key, ...body), whole)
    t.match(await verify(before.pack, ...key), whole)

    t.equal((await gateway.admin('POST', `/v1/admin/users/${who.id}/erase`)).status, 204)
    const last = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: BODY })
    await eventually(
      () => gateway.call(bot, 'GET', `/v1/audit/proofs/${String(last.headers['x-request-id'])}`),
      ({ status }) => status === 200,
    )

    t.equal(await tile(), before.tile, 'the tree is the same')
    t.match(
      await verify(before.receipt, ...key, ...checkpoint, ...body),
      whole,
      'what the person kept still opens',
    )
    t.match(await verify(before.pack, ...key, ...checkpoint), whole)
    t.match(await verify(before.export, ...checkpoint, '--authority'), whole)
    const [pack, text] = [await evidence(), await exported()]
    t.match(await verify(kept('after.zip', pack), ...key, ...checkpoint), whole)
    t.match(await verify(kept('after.ndjson', text), ...checkpoint, '--authority'), whole)
    t.notMatch(text, name)
    t.match(text, ref, 'the pseudonym stays')
    const anew = await receiptOf(null)
    t.same(anew.json.salts, {}, 'nobody can open what it sent any more')
    const file = kept('anew.json', anew.text)
    t.match(await verify(file, ...key), whole)
    t.match(await verify(file, ...key, ...body), { code: 2 })
    t.equal((await ask(who, `/v1/audit/proofs/${id}`)).status, 401)
    const database = await sallyport(['verify', gateway.settings.databaseUrl, ...key, ...checkpoint])
    t.match(
      database,
      { code: 0, out: /\nVERIFIED, KEPT outside as a checkpoint of \d+ rows\n$/ },
      database.err,
    )
  },
)
