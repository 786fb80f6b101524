import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { tilePath } from '../../../db/ledger/tree/tiles.ts'
import { type Identity, scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { built } from '../../support/go/built.ts'
import { eventually } from '../../support/settled.ts'

// A program is compiled first, on a machine that may be busy.
t.setTimeout(300_000)
const { program, missing } = await built('logreader')
const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

/** Downloads all that a stranger needs to read the log on its own. */
async function downloaded(gateway: TestGateway, bot: Identity, directory: string) {
  const ask = (path: string) => gateway.call(bot, 'GET', `/v1/audit/${path}`)
  const checkpoint = (await ask('checkpoint')).text
  const size = Number(checkpoint.split('\n')[1])
  mkdirSync(directory)
  for (let [level, count] = [0, size]; count > 0; level += 1, count = Math.floor(count / 256)) {
    for (let n = 0; n * 256 < count; n += 1) {
      const path = tilePath({ level, n }, Math.min(256, count - n * 256))
      const { bytes } = await ask(`tile/${path}`)
      writeFileSync(join(directory, path.replaceAll('/', '_')), bytes.toString('base64'))
    }
  }
  return { Key: (await ask('key')).text.trim(), Checkpoint: checkpoint, Tiles: directory }
}

await t.test(
  "the log is read by Go's own note and tree, and a change anywhere is found by them",
  { skip: missing },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const chat = async () =>
      String(
        (await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).headers['x-request-id'],
      )
    const first = await chat()
    const proofs = (id: string) =>
      eventually(
        () => gateway.call(bot, 'GET', `/v1/audit/proofs/${id}`),
        ({ status, json }) => status === 200 && json.rows.length === 2,
      )
    await proofs(first)
    const earlier = (await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text
    const ids = await Promise.all(Array.from({ length: 140 }, chat))
    const rows: readonly { readonly leaf: string; readonly proof: string }[] = (
      await Promise.all(ids.slice(-3).map(proofs))
    ).flatMap(({ json }) => json.rows)
    const [one] = rows
    if (!one) throw new Error('there is no row')
    const log = {
      ...(await downloaded(gateway, bot, join(await scratch(t), 'tiles'))),
      Earlier: earlier,
      Leaves: rows.map(({ leaf }) => leaf),
      Proofs: rows.map(({ proof }) => proof),
    }
    const said = (input: object): string =>
      spawnSync(program, { input: JSON.stringify(input), encoding: 'utf8' }).stdout.trim()
    t.equal(said(log), 'ok')
    t.ok(Number(log.Checkpoint.split('\n')[1]) > 256, 'over more than one tile')
    t.match(said({ ...log, Leaves: log.Leaves.with(0, one.leaf.replace('allowed', 'denied')) }), /proof 0/)
    t.match(said({ ...log, Proofs: log.Proofs.with(1, one.proof) }), /proof 1/)
    t.match(said({ ...log, Key: log.Key.replace(/.{8}$/, 'AAAAAAA=') }), /invalid|malformed|verifier/)
    t.match(said({ ...log, Checkpoint: log.Checkpoint.replace('\n2', '\n3') }), /signature|note/)
    writeFileSync(join(log.Tiles, '0_000'), Buffer.alloc(256 * 32).toString('base64'))
    t.not(said(log), 'ok', 'a tile of zeros')
  },
)
