import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { once } from 'node:events'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { leafHash } from '../../../db/ledger/tree/hashes.ts'
import { noteOf, parseNote, parseVerifierKey, verifyNoteSignature } from '../../../db/ledger/tree/note.ts'
import { consistencyProof } from '../../../db/ledger/tree/proofs.ts'
import { extendTree, type ReadTile } from '../../../db/ledger/tree/tiles.ts'
import { parseSignedCheckpoint, parseSignedCheckpoints } from '../../../db/ledger/tree/trusted.ts'
import { scratch, testGateway } from '../../support/gateway.ts'
import { sallyport } from '../../support/run.ts'
import { checkpointOver, ORIGIN, signer } from '../../support/sealed-log.ts'
import { eventually } from '../../support/settled.ts'

const PROGRAM = join(import.meta.dirname, '../../../scripts/sallyport.ts')
const NAME = 'witness.example.org'

/** A witness of a log, as a process of its own. */
async function started(t: Test, state: string, vkey: string) {
  const args = ['witness', '--name', NAME, '--log', vkey, '--state', state, '--listen', '127.0.0.1:0']
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const [key] = await once(createInterface({ input: child.stdout }), 'line')
  const [line] = await once(createInterface({ input: child.stderr }), 'line')
  const [, url = ''] = /(http:\S+)$/.exec(String(line)) ?? []
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
  }
  const end = async (): Promise<unknown> => {
    child.kill('SIGTERM')
    return (await ended)[0]
  }
  return { key: parseVerifierKey(String(key)), vkey: String(key), url, kill, end }
}

const log = signer()
const leaves = Array.from({ length: 40 }, (_, index) => `row ${index}`)
const other = leaves.with(3, 'another row')

const tilesOf = (all: readonly string[]): ReadTile => {
  const { tiles } = extendTree(0, [], Buffer.concat(all.map(leafHash)))
  return async ({ level, n }, width) => {
    const found = tiles.find((tile) => tile.level === level && tile.n === n)?.hashes ?? Buffer.alloc(0)
    return found.subarray(0, width * 32)
  }
}

/** A request to add a checkpoint of so many of the leaves. */
async function requestFor(old: number, size: number, all = leaves, by = log): Promise<string> {
  const proof = old === 0 || old >= size ? [] : await consistencyProof(tilesOf(all), old, size)
  const note = checkpointOver(all.slice(0, size), by)
  return [`old ${old}`, ...proof.map((hash) => hash.toString('base64')), '', note].join('\n')
}

async function add(url: string, body: string) {
  const answer = await fetch(`${url}/add-checkpoint`, { method: 'POST', body })
  return { status: answer.status, type: answer.headers.get('content-type'), text: await answer.text() }
}

await t.test('a witness cosigns what follows from all that it has cosigned, and nothing else', async (t) => {
  const state = join(await scratch(t), 'state')
  const { url, key, end } = await started(t, state, log.vkey)
  const first = await add(url, await requestFor(0, 5))
  t.equal(first.status, 200)
  const { text } = parseNote(checkpointOver(leaves.slice(0, 5), log))
  t.match(verifyNoteSignature(parseNote(noteOf(text, [first.text.trim()])), key), { good: true, at: Number })
  t.equal((await add(url, await requestFor(5, 5))).status, 200, 'the same once more')
  t.equal((await add(url, await requestFor(5, 12))).status, 200)
  const behind = await add(url, await requestFor(5, 20))
  t.same(behind, { status: 409, type: 'text/x.tlog.size', text: '12\n' })
  t.equal((await add(url, await requestFor(12, 20))).status, 200)
  const cases: readonly (readonly [string, string, number])[] = [
    ['a smaller tree', await requestFor(20, 12), 400],
    ['one from the beginning', await requestFor(0, 20), 409],
    ['another tree of the same size', await requestFor(20, 20, other), 422],
    ['another tree', await requestFor(20, 30, other), 422],
    ['no proof', (await requestFor(20, 30)).replace(/^(old 20\n)[\s\S]*?\n\n/, '$1\n'), 422],
    ['another log', await requestFor(0, 5, leaves, signer('example.org/other/audit')), 404],
    ['another key', await requestFor(20, 30, leaves, signer()), 403],
    ['no request', 'hello', 400],
    ['no old size', (await requestFor(20, 30)).replace('old 20', 'old -1'), 400],
    [
      'a line in front of the root',
      (await requestFor(20, 30)).replace(`${ORIGIN}\n30\n`, `${ORIGIN}\n30\nAA==\n`),
      400,
    ],
    ['an empty line behind the root', (await requestFor(20, 30)).replace('\n\n— ', '\n\nline\n\n— '), 400],
    ['too much', `old 0\n\n${'x'.repeat(70_000)}`, 413],
  ]
  for (const [name, body, status] of cases) t.equal((await add(url, body)).status, status, name)
  t.equal((await fetch(`${url}/add-checkpoint`)).status, 405)
  t.equal((await fetch(`${url}/nothing`)).status, 404)
  t.equal((await add(url, await requestFor(20, 40))).status, 200, 'none of that has moved it')
  const asked = (origin: string) => fetch(`${url}/${hash('sha256', origin)}/checkpoint`)
  const kept = await asked(ORIGIN)
  t.match(kept, { status: 200 })
  t.equal(kept.headers.get('content-type'), 'text/plain; charset=utf-8')
  const served = parseSignedCheckpoint(await kept.text())
  t.match(served, { origin: ORIGIN, size: 40, note: { signatures: { length: 2 } } })
  for (const vkey of [key, parseVerifierKey(log.vkey)])
    t.ok(verifyNoteSignature(served.note, vkey).good, vkey.name)
  t.match(await asked('example.org/other/audit'), { status: 404 }, 'a log of which nothing was cosigned')
  t.match(await fetch(`${url}/${hash('sha256', ORIGIN)}/checkpoint`, { method: 'POST' }), { status: 404 })
  t.equal(await end(), 0)
})

await t.test('kill -9 makes no witness forget what it has cosigned', async (t) => {
  const state = join(await scratch(t), 'state')
  let before = 0
  for (const size of [4, 9, 17]) {
    const { url, kill } = await started(t, state, log.vkey)
    const [one, two] = await Promise.all([
      add(url, await requestFor(before, size)),
      add(url, await requestFor(before, size, other)),
    ])
    t.ok([one, two].filter(({ status }) => status === 200).length === 1, `${one.status} ${two.status}`)
    await kill()
    const again = await started(t, state, log.vkey)
    t.same(await add(again.url, await requestFor(0, 1)), {
      status: 409,
      type: 'text/x.tlog.size',
      text: `${size}\n`,
    })
    await again.kill()
    // The one that was cosigned is the log from here on; where it was the other one, this test begins anew.
    if (one.status !== 200) return
    before = size
  }
})

await t.test(
  'a state that cannot be read, a name or a key that is none stop the start with a sentence',
  async (t) => {
    const state = join(await scratch(t), 'state')
    const { kill, url } = await started(t, state, log.vkey)
    t.equal((await add(url, await requestFor(0, 3))).status, 200)
    const second = ['witness', '--state', state, '--listen', '127.0.0.1:0', '--name', NAME, '--log', log.vkey]
    t.match(await sallyport(second), { code: 1, err: /lock is held by another process/ }, 'two of one memory')
    await kill()
    const [file = ''] = (await readdir(state)).filter((name) => name.endsWith('.checkpoint'))
    await writeFile(join(state, file), 'nonsense')
    const args = ['witness', '--state', state, '--listen', '127.0.0.1:0']
    t.match(await sallyport([...args, '--name', NAME, '--log', log.vkey]), { code: 1, err: /cannot be read/ })
    t.match(await sallyport([...args, '--name', 'a b', '--log', log.vkey]), { code: 1, err: /give its name/ })
    t.match(await sallyport([...args, '--name', NAME]), { code: 1, err: /--log/ })
    t.match(await sallyport([...args, '--name', NAME, '--log', 'x']), { code: 1, err: /verifier key/ })
    t.match(await readFile(join(state, 'witness.key'), 'utf8'), /PRIVATE KEY/)
  },
)

await t.test('a gateway has its checkpoints cosigned, and serves the cosignatures', async (t) => {
  const root = await scratch(t)
  // The gateway's key is known only when it has begun: the witness is told of it, and the gateway of the witness.
  const plain = '45-proofs.yaml'
  const gateway = await testGateway(t, { files: { [plain]: 'plugin: proofs\nseal_interval_ms: 100\n' } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const vkey = (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()
  const witness = await started(t, join(root, 'state'), vkey)
  const anchors = JSON.stringify([{ witness: witness.url, key: witness.vkey }])
  await writeFile(
    join(gateway.pluginsDir, plain),
    `plugin: proofs\nseal_interval_ms: 100\nanchors: ${anchors}\n`,
  )
  t.equal(await gateway.reload(), true)
  const checkpoint = async () => (await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text
  const cosigned = (text: string): boolean =>
    parseSignedCheckpoints(text).some(({ note }) => verifyNoteSignature(note, witness.key).good)
  t.ok(cosigned(await eventually(checkpoint, cosigned)))
  await gateway.enroll('other', [])
  const size = Number((await checkpoint()).split('\n')[1])
  const later = await eventually(checkpoint, (text) => cosigned(text) && Number(text.split('\n')[1]) > size)
  t.ok(cosigned(later), 'and what follows, with a proof that it follows')
})
