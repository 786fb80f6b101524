import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { cp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { parseVerifierKey, verifyNoteSignature } from '../../../db/ledger/tree/note.ts'
import { parseSignedCheckpoint } from '../../../db/ledger/tree/trusted.ts'
import { skipWithoutFile } from '../../support/db/engine.ts'
import {
  type Identity,
  type Json,
  scratch,
  type TestGateway,
  type TestOptions,
  testGateway,
} from '../../support/gateway.ts'
import { built } from '../../support/go/built.ts'
import { conversation } from '../../support/go/conversation.ts'
import { operatorOnTheMachine } from '../../support/operators.ts'
import { signer } from '../../support/sealed-log.ts'
import { eventually } from '../../support/settled.ts'
import { allVerifiers } from '../../support/verifiers.ts'

// A program of two hundred packages is compiled first, on a machine that may be busy.
t.setTimeout(300_000)
const { program, missing } = await built('peers')
const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

const AT_ONCE = 20

/** Calls that are recorded and sealed; resolves with what proves the last one. */
async function called(gateway: TestGateway, bot: Identity, times: number): Promise<Json> {
  const chat = () => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  let id = ''
  // Some at once: each has a connection of its own, and on a busy machine a handshake has its time too.
  for (let left = times; left > 0; left -= AT_ONCE) {
    const answers = await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, chat))
    for (const { status } of answers) if (status !== 200) throw new Error(`a call was answered ${status}`)
    id = String(answers.at(-1)?.headers['x-request-id'])
  }
  const proofs = () => gateway.call(bot, 'GET', `/v1/audit/proofs/${id}`)
  return (await eventually(proofs, ({ status, json }) => status === 200 && json.rows.length === 2)).json
}

const textOf = async (gateway: TestGateway, bot: Identity, path: string): Promise<string> =>
  (await gateway.call(bot, 'GET', `/v1/audit/${path}`)).text

const sizeOf = (checkpoint: string): number => parseSignedCheckpoint(checkpoint).size

await t.test(
  "the log is read over its own doors by tessera's client and transparency-dev's proofs, and a change anywhere is found by them",
  { skip: missing },
  async (t) => {
    const files = { '45-proofs.yaml': 'plugin: proofs\nseal_interval_ms: 100\n' }
    const gateway = await testGateway(t, { files })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const auditor = await operatorOnTheMachine(gateway, 'auditor', ['admin.audit'])
    const earlier: string[] = []
    let proven: Json
    for (const times of [1, 7, 150]) {
      proven = await called(gateway, bot, times)
      earlier.push(await textOf(gateway, bot, 'checkpoint'))
    }
    const given = {
      url: `${gateway.url}/v1/audit/`,
      certificate: auditor.cert,
      privateKey: auditor.key,
      ca: gateway.ca,
      key: (await textOf(gateway, bot, 'key')).trim(),
      earlier,
      leaves: proven.rows.map(({ leaf }: Json) => leaf),
      proofs: proven.rows.map(({ proof }: Json) => proof),
      entries: true,
    }
    const read = async (more: object = {}): Promise<Json> => {
      const child = spawn(program, ['read'], { stdio: ['pipe', 'pipe', 'ignore'] })
      child.stdin.end(JSON.stringify({ ...given, ...more }))
      return JSON.parse(await text(child.stdout))
    }
    const whole = await read()
    t.equal(whole.said, 'ok')
    t.ok(whole.size > 256, `more than one tile: ${whole.size}`)
    t.equal(whole.leaves.length, whole.size)
    const recorded = new Set((await gateway.rows()).map(({ row_hash: rowHash }) => rowHash))
    t.ok(
      whole.leaves.every((leaf: string) => recorded.has(hash('sha256', leaf))),
      'each leaf is a row',
    )
    const next = new Map<string, number>()
    for (const { stream, seq } of whole.leaves.map((leaf: string) => JSON.parse(leaf))) {
      if (seq !== (next.get(stream) ?? 1)) t.fail(`${stream}:${seq} is not in its place`)
      next.set(stream, seq + 1)
    }
    for (const leaf of given.leaves) t.ok(whole.leaves.includes(leaf))

    const refused = async (name: string, more: object, said: RegExp) =>
      t.match((await read(more)).said, said, name)
    const other = earlier[0]?.replace(/\n[^\n]{44}\n/, `\n${Buffer.alloc(32, 7).toString('base64')}\n`)
    const [, second] = given.proofs
    await refused('a byte of a full tile', { spoiled: '/tile/0/000' }, /^leaf 0: calculated root/)
    const last = `/tile/0/001.p/${whole.size % 256}`
    await refused('a byte of the last tile', { spoiled: last }, /^leaf 0: calculated root/)
    await refused('a byte of the tile above', { spoiled: '/tile/1/000.p/1' }, /^leaf 256: calculated root/)
    await refused('a byte of the leaves', { spoiled: '/tile/entries/000' }, /^failed: tile\/.* log has:/)
    await refused('a byte of the checkpoint', { spoiled: '/checkpoint' }, /no verifiable|invalid|malformed/)
    await refused('another root', { earlier: [other] }, /invalid signature/)
    await refused(
      'the key of another log',
      { key: signer('example.org/other/audit').vkey },
      /verif|signature/,
    )
    await refused('the proof of another leaf', { proofs: [second, second] }, /^proof 0: /)
    await refused('another leaf', { leaves: given.leaves.toReversed() }, /^proof 0: /)
    const asAgent = { certificate: bot.cert, privateKey: bot.key }
    await refused('leaves without admin.audit', asAgent, /403/)
    t.equal((await read({ ...asAgent, entries: false })).said, 'ok', 'the tree is for every caller')
  },
)

const WITNESS = 'witness.example.org'

/** A witness of transparency-dev for the log of a gateway, which has been told of it. */
async function witnessed(t: Parameters<typeof testGateway>[0]) {
  const gateway = await testGateway(t, { files: proofs([]) })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const key = (await textOf(gateway, bot, 'key')).trim()
  const { first: witness } = await conversation(t, program, ['witness', key, WITNESS])
  const files = proofs([{ witness: witness.url, key: witness.vkey }])
  await writeFile(join(gateway.pluginsDir, '45-proofs.yaml'), files['45-proofs.yaml'] ?? '')
  t.equal(await gateway.reload(), true)
  return { gateway, bot, key, vkey: String(witness.vkey), files }
}

const proofs = (anchors: readonly object[]): Record<string, string> => ({
  '45-proofs.yaml': `plugin: proofs\nseal_interval_ms: 100\nanchors: ${JSON.stringify(anchors)}\n`,
})

/** The newest checkpoint, once a witness has cosigned it. */
const cosigned = (gateway: TestGateway, bot: Identity, vkey: string): Promise<string> =>
  eventually(
    () => textOf(gateway, bot, 'checkpoint'),
    (note) => verifyNoteSignature(parseSignedCheckpoint(note).note, parseVerifierKey(vkey)).good,
  )

await t.test(
  'a witness that nobody here wrote cosigns the log as it grows, and both verifiers say so',
  { skip: missing },
  async (t) => {
    const { gateway, bot, key, vkey } = await witnessed(t)
    const verify = allVerifiers(t)
    const directory = await scratch(t)
    const sizes: number[] = []
    for (const times of [1, 3, 130]) {
      await called(gateway, bot, times)
      const { note, size } = parseSignedCheckpoint(await cosigned(gateway, bot, vkey))
      t.match(verifyNoteSignature(note, parseVerifierKey(vkey)), { good: true, at: Number })
      sizes.push(size)
    }
    t.ok((sizes.at(-1) ?? 0) > 256 && new Set(sizes).size === sizes.length, sizes.join(', '))
    const proven = (await called(gateway, bot, 1)).rows[0]
    const id = JSON.parse(proven.leaf).request_id
    const receipt = await eventually(
      () => textOf(gateway, bot, `proofs/${id}`),
      (answer) => JSON.parse(answer).rows[0].proof.includes(`— ${WITNESS} `),
    )
    const kept = async (name: string, bytes: string | Buffer): Promise<string> => {
      await writeFile(join(directory, name), bytes)
      return join(directory, name)
    }
    const trusted = ['--key', key, '--witness', vkey]
    const file = await kept('receipt.json', receipt)
    t.match(await verify(file, ...trusted), {
      code: 0,
      last: new RegExp(`^VERIFIED, WITNESSED by ${WITNESS}`),
    })
    t.match(await verify(file, '--key', key), { code: 0, last: 'VERIFIED' })
    const other = await verify(file, '--key', key, '--witness', signer(WITNESS, 'witness').vkey)
    t.not(other.code, 0, `another witness of the same name: ${other.last}`)
    const pack = (await gateway.admin('GET', '/v1/admin/audit/evidence')).bytes
    t.match(await verify(await kept('pack.zip', pack), ...trusted), { code: 0, last: /WITNESSED by/ })
  },
)

await t.test(
  'F-26 a witness that nobody here wrote refuses an older copy, and the fork that grows from it; the gateway says so and serves',
  { skip: missing || skipWithoutFile },
  async (t) => {
    const { gateway, bot, vkey, files } = await witnessed(t)
    const { dataDir } = gateway.settings
    const again = (options: TestOptions = {}): Promise<TestGateway> =>
      testGateway(t, { ...options, files, settings: { MCP_PROXY_DATA_DIR: dataDir } })
    await called(gateway, bot, 2)
    await cosigned(gateway, bot, vkey)
    await gateway.close(0)
    const copy = join(await scratch(t), 'copy')
    await cp(dataDir, copy, { recursive: true })

    const grown = await again()
    await called(grown, bot, 20)
    const size = sizeOf(await cosigned(grown, bot, vkey))
    await grown.close(0)
    await rm(dataDir, { recursive: true })
    await cp(copy, dataDir, { recursive: true })

    let ahead = 0
    const rolled = await again({ clock: () => Date.now() + ahead })
    const standing = async (): Promise<Json> => (await rolled.admin('GET', '/v1/admin/log')).json.anchors[0]
    const behind = await eventually(standing, ({ error }) => error !== null)
    t.match(behind.error, new RegExp(`^it has cosigned ${size} rows, and this log has \\d+$`))
    await called(rolled, bot, 30)
    // The pause behind the failure is over.
    ahead = 180_000
    const forked = await eventually(standing, ({ error }) => /422/.test(error))
    t.match(forked.error, new RegExp(`^it does not find the ${size} rows that it has cosigned .* 422`))
    const newest = await textOf(rolled, bot, 'checkpoint')
    t.ok(sizeOf(newest) > size, 'the fork is longer than what was cosigned')
    t.equal(verifyNoteSignature(parseSignedCheckpoint(newest).note, parseVerifierKey(vkey)).good, false)
    t.match((await rolled.call(null, 'GET', '/ready')).json, { status: 'ready', checks: { anchors: 'late' } })
    t.match(
      (await rolled.admin('GET', '/metrics')).text,
      /audit_anchor_failures_total\{anchor="witness:[^"]+"\} [1-9]/,
    )
    const warned = rolled.log.filter(({ msg }) => msg === 'a checkpoint could not be anchored')
    t.ok(warned.length >= 2)
    t.match(warned[0].err.message, /it has cosigned/)
    t.equal((await rolled.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  },
)
