import { generateKeyPairSync } from 'node:crypto'
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import t from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { type Checkpoint, checkpointText } from '../../../db/ledger/tree/checkpoint.ts'
import { EMPTY_ROOT } from '../../../db/ledger/tree/hashes.ts'
import { noteOf, verifierKeyText } from '../../../db/ledger/tree/note.ts'
import { currentTree, newestCheckpoint, noteOfCheckpoint } from '../../../db/ledger/tree/store.ts'
import { archiveRows } from '../../../proxy/archive/archive.ts'
import { recordState } from '../../../proxy/proofs/state-recorder.ts'
import { progressText, VerifyProgress } from '../../../scripts/verifying/progress.ts'
import { type ArchivedLog, openArchivedLog } from '../../support/archive.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { chainOf, exportOf, note, started } from '../../support/db/history.ts'
import { past } from '../../support/db/raw.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const sallyport = verbsInTurn(t)

const verify = allVerifiers(t)
const NEVER = new AbortController().signal

async function recordNotes({ ledger, sealer }: ArchivedLog, count: number): Promise<void> {
  await ledger.commit({ entries: Array.from({ length: count }, (_, n) => note('audit.reviewed', { n })) })
  await sealer.seal()
}

/** Keeps the newest checkpoint in a file, or another one that the log signs. */
async function keep(
  { database: { kysely }, keys }: ArchivedLog,
  file: string,
  other?: Pick<Checkpoint, 'size' | 'root'>,
): Promise<string> {
  const tree = await currentTree(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!newest) throw new Error('there is no checkpoint')
  const text = other && checkpointText({ origin: tree.origin, ...other })
  writeFileSync(
    file,
    text ? noteOf(text, await keys.sign(tree, text)) : await noteOfCheckpoint(kysely, tree, newest),
  )
  return file
}

t.test('--since verifies what came behind a checkpoint that was kept', async (t) => {
  const directory = t.testdir({ archive: {} })
  const [folder, at] = [join(directory, 'archive'), (name: string) => join(directory, name)]
  const url = await databaseUrl(directory)
  const log = await openArchivedLog(t, url)
  const authority = { rootPem: '', intermediatePem: '', rotation: null }
  const quiet = pino({ level: 'silent' })
  const given = { ...log, folder, authority, location: databaseLocation(url), anchors: () => [], log: quiet }
  await recordNotes(log, 100)
  const early = await keep(log, at('early'))
  await recordNotes(log, 200)
  const tree = (await currentTree(log.database.kysely))?.tree ?? 0
  await recordState(given, { tree, leaf: 256 }, NEVER)
  await log.sealer.seal()
  const kept = await keep(log, at('kept'))
  await recordNotes(log, 400)
  const late = await keep(log, at('late'))
  const since = (file: string, ...more: readonly string[]) =>
    sallyport(['verify', url, '--since', file, ...more])

  t.match(await since(kept), {
    code: 0,
    out: /^whole: 446 rows[\s\S]*^not read: 256 rows before leaf 256, which are under the checkpoint of 302 rows$[\s\S]*^VERIFIED, KEPT outside as a checkpoint of 302 rows$/m,
  })
  t.match(await since(late), { code: 0, out: /^whole: 446 rows/m })
  t.match(await since(early), { code: 0, out: /no state is stored before the checkpoint of 101 rows/ })
  const text = readFileSync(kept, 'utf8')
  const root = (text.split('\n')[2] ?? '').replace(/^./, (one) => (one === 'A' ? 'B' : 'A'))
  const written = (name: string, content: string): string => {
    writeFileSync(at(name), content)
    return at(name)
  }
  const other = generateKeyPairSync('ed25519').publicKey
  const odd: Readonly<Record<string, readonly [file: string, code: number, said: RegExp, more?: string[]]>> =
    {
      'of another log': [written('other', text.replace(/^/, 'other.')), 3, /of another log: other\./],
      'with a changed root': [
        written('root', text.replace(/^[A-Za-z0-9+/]{43}=$/m, root)),
        3,
        /another root|not signed/,
      ],
      'signed, of another root': [
        await keep(log, at('forged'), { size: 302, root: Buffer.from(root, 'base64') }),
        3,
        /the checkpoint of 302 rows has another root/,
      ],
      'by another key': [kept, 3, /is not signed by the key/, ['--key', verifierKeyText('a', 'log', other)]],
      'cosigned by nobody': [
        kept,
        3,
        /the kept checkpoint of 302 rows is not cosigned by the witness w/,
        ['--witness', verifierKeyText('w', 'witness', other)],
      ],
      'from the future': [
        await keep(log, at('future'), { size: 9_999, root: Buffer.alloc(32) }),
        4,
        /CUT SHORT: there are 702 rows, but a checkpoint of 9999 rows was signed/,
      ],
      'of no rows': [
        await keep(log, at('none'), { size: 0, root: EMPTY_ROOT }),
        9,
        /a checkpoint of no rows/,
      ],
      cut: [written('cut', text.slice(0, -50)), 9, /there is no checkpoint in it|base64/],
      'no checkpoint at all': [written('no', 'no'), 9, /there is no checkpoint in it/],
    }
  for (const [name, [file, code, said, more = []]] of Object.entries(odd)) {
    const found = await since(file, ...more)
    t.equal(found.code, code, `${name}: ${found.out}${found.err}`)
    t.match(found.out + found.err, said, name)
  }

  const exported = at('all.ndjson')
  t.equal((await sallyport(['export-audit', url, '--out', exported])).code, 0)
  t.match(await verify(exported, '--since', kept), { code: 9, err: /an export has no tiles/ })
  await archiveRows(given, 255, NEVER)
  await archiveRows(given, 511, NEVER)
  const [first, second] = [join(folder, '0-255.zip'), join(folder, '256-511.zip')]
  t.match(await verify(folder, '--since', kept), {
    code: 0,
    out: /^2 segments: leaves 0 to 511, 256 rows$[\s\S]*^not read: 256 rows in 1 segment/m,
    last: 'VERIFIED, KEPT outside as a checkpoint of 302 rows',
  })
  t.match(await verify(folder, '--since', at('forged')), { code: 3, out: /another root/ })
  t.match(await verify(folder, '--since', at('future')), { code: 4, out: /the folder ends with leaf 511/ })
  t.match(await verify(second, '--since', kept), { code: 0, last: /^VERIFIED, KEPT/ })
  t.match(await verify(first, '--since', at('future')), { code: 4 })
  t.match(await verify(second, '--since', early), { code: 3, out: /no tiles to show that it goes on/ })
  t.match(await since(kept), { code: 9, err: /the first 512 are archived: add --archive/ })
  t.match(await since(kept, '--archive', folder), { code: 0, out: /^not read: 256 rows in 1 segment/m })
  t.match(await since(late), { code: 0, out: /^not read: 512 rows in 2 segments of the archive$/m })
})

t.test('a folder of segments is verified as one ledger, and each odd file is named', async (t) => {
  const directory = t.testdir({ archive: {}, other: {}, theirs: {} })
  const folder = join(directory, 'archive')
  const url = await databaseUrl(directory)
  const log = await openArchivedLog(t, url)
  const authority = { rootPem: '', intermediatePem: '', rotation: null }
  const given = { ...log, folder, authority, location: databaseLocation(url), anchors: () => [] }
  const archive = (last: number) => archiveRows({ ...given, log: pino({ level: 'silent' }) }, last, NEVER)
  await recordNotes(log, 300)
  await archive(255)
  await recordNotes(log, 400)
  await archive(511)
  await recordNotes(log, 400)
  const older = { export: join(directory, 'older.ndjson'), database: join(directory, 'older.db') }
  t.equal((await sallyport(['export-audit', url, '--out', older.export])).code, 0)
  if (ENGINE === 'sqlite') await past(url, `vacuum into '${older.database}'`)
  await archive(1_023)
  await recordNotes(log, 20)

  t.match(await verify(folder), {
    code: 0,
    out: /^3 segments: leaves 0 to 1023, 1024 rows$/m,
    last: 'CONSISTENT, NOT WITNESSED',
  })
  const exported = join(directory, 'rest.ndjson')
  t.equal((await sallyport(['export-audit', url, '--out', exported])).code, 0)
  const alone = await verify(exported)
  t.match(alone, { code: 2, out: /it begins in the middle.*--archive/ })
  const rest = await verify(exported, '--archive', folder)
  t.match(rest, { code: 0, out: /decisions recomputed 0, disagree 0/ })
  const whole = await sallyport(['verify', url, '--archive', folder])
  t.match(whole, { code: 0, out: /^3 segments: leaves 0 to 1023, 1024 rows$/m })

  for (const [name, file] of Object.entries(older))
    if (existsSync(file))
      t.match(
        await sallyport(['verify', file, '--archive', folder]),
        name === 'export'
          ? { code: 2, out: /row \w+:513 stands after 1024/ }
          : { code: 0, out: /^512-1023\.zip: no row says that it is archived; the database is older/m },
        `an older ${name} that was restored`,
      )
  const otherUrl = await databaseUrl(join(directory, 'other'))
  const other = await openArchivedLog(t, otherUrl)
  const theirs = {
    ...given,
    ...other,
    folder: join(directory, 'theirs'),
    location: databaseLocation(otherUrl),
  }
  for (const last of [255, 511]) {
    await recordNotes(other, 400)
    await archiveRows({ ...theirs, log: pino({ level: 'silent' }) }, last, NEVER)
  }

  const at = (name: string) => join(directory, 'copy', name)
  const SECOND = '256-511.zip'
  const edits: Readonly<Record<string, readonly [edit: () => void, code: number, finding: RegExp]>> = {
    'one is gone': [() => rmSync(at(SECOND)), 2, /leaves 256 to 511 are in no file/],
    'one is there twice': [
      () => copyFileSync(at(SECOND), at('300-555.zip')),
      2,
      /300-555\.zip holds leaves 256 to 511, and not those of its name/,
    ],
    'one is renamed': [
      () => renameSync(at(SECOND), at('256-767.zip')),
      2,
      /holds leaves 256 to 511, and not/,
    ],
    'one is cut': [
      () => writeFileSync(at(SECOND), readFileSync(at(SECOND)).subarray(0, -100)),
      2,
      /256-511\.zip cannot be read/,
    ],
    'a bit is flipped': [
      () => {
        const bytes = readFileSync(at(SECOND))
        bytes.writeUInt8(bytes.readUInt8(2_000) ^ 4, 2_000)
        writeFileSync(at(SECOND), bytes)
      },
      2,
      /256-511\.zip/,
    ],
    'the first is of another log': [
      () => copyFileSync(join(theirs.folder, '0-255.zip'), at('0-255.zip')),
      2,
      /256-511\.zip does not begin with the state|0-255\.zip is another file than row/,
    ],
    'one is of another log': [
      () => copyFileSync(join(theirs.folder, SECOND), at(SECOND)),
      2,
      /256-511\.zip does not begin with the state|256-511\.zip is another file than row/,
    ],
    'one is from the future': [
      () => copyFileSync(at('512-1023.zip'), at('1024-1535.zip')),
      2,
      /1024-1535\.zip holds leaves 512 to 1023, and not those of its name/,
    ],
    'the last is gone': [
      () => rmSync(at('512-1023.zip')),
      2,
      /row \w+:513 is missing: 512 is followed by 1025/,
    ],
  }
  for (const [name, [edit, code, finding]] of Object.entries(edits)) {
    rmSync(at(''), { recursive: true, force: true })
    cpSync(folder, at(''), { recursive: true })
    edit()
    const found = await verify(exported, '--archive', at(''))
    t.equal(found.code, code, name)
    t.match(found.out, finding, name)
  }
  rmSync(at(''), { recursive: true })
  mkdirSync(at(''))
  writeFileSync(at('0-255.zip'), 'no zip')
  t.match(await verify(at('')), { code: 2, out: /^1 segment: leaves 0 to 255, 0 rows$/m }, 'none can be read')
  mkdirSync(at('empty'))
  t.match(await verify(at('empty')), { code: 9, err: /there is no segment in/ })
})

t.test(
  'a long export is read by threads, of the single file too, and an odd row in it is named',
  async (t) => {
    const file = join(t.testdir(), 'long.ndjson')
    const text = 'x'.repeat(1_000)
    const notes = Array.from({ length: 2_400 }, (_, n) => note('audit.reviewed', { n, text }))
    const lines = exportOf(chainOf([started, ...notes]))
    writeFileSync(file, lines)
    t.match(await verify(file), { code: 0, out: /^whole: 2401 rows in 1 stream$/m })
    writeFileSync(file, lines.replace('"n":2300,', '"n":2301,'))
    t.match(await verify(file), { code: 2, out: /^BAD: row main:2302 was changed/m })
  },
)

t.test('a verification says how far it is, at what rate, and how long the rest takes', async (t) => {
  for (const [done, total, seconds, said] of [
    [1_200_000, 4_800_000, 8, '1,200,000 of 4,800,000 rows, 150,000 rows/s, 24 s left'],
    [1_000_000, 100_000_000, 10, '1,000,000 of 100,000,000 rows, 100,000 rows/s, 17 min left'],
    [1_000, 100_000_000, 10, '1,000 of 100,000,000 rows, 100 rows/s, 278 h left'],
    [700, 0, 1, '700 rows, 700 rows/s'],
    [800, 700, 1, '800 rows, 800 rows/s'],
  ] as const)
    t.equal(progressText(done, total, seconds), said)
  const written = t.capture(process.stderr, 'write')
  const progress = new VerifyProgress(0)
  progress.expect(2)
  const row = { damaged: 'is none' }
  const pages = []
  for await (const page of progress.show([row, [row]], 3)) pages.push(page)
  t.same(pages, [[row], [row]])
  const said = written().map(({ args: [text] }) => String(text))
  t.match(
    said,
    [/^1 of 5 rows, .* rows\/s, .* left\n$/, /^2 of 5 rows, /],
    'each on a line, where there is no terminal',
  )
})
