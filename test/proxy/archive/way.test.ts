import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { listRows } from '../../../db/ledger/read/read.ts'
import { countPlaces, newestSegment } from '../../../db/ledger/tree/segments.ts'
import { isTreeAsSigned } from '../../../db/ledger/tree/store.ts'
import { packOf } from '../../../proxy/admin/audit/pack.ts'
import { scopeOf } from '../../../proxy/admin/audit/scope.ts'
import { ZippedFile, ZipWriter } from '../../../proxy/admin/audit/zip.ts'
import { type ArchiveDependencies, archiveRows } from '../../../proxy/archive/archive.ts'
import { openZip } from '../../../scripts/verifying/zip.ts'
import { type ArchivedLog, openArchivedLog, recordCalls } from '../../support/archive.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { AT } from '../../support/db/scratch-ledger.ts'
import { smallDisk, withoutTmpfs } from '../../support/small-disk.ts'
import { withoutPython } from '../../support/verifiers.ts'

const NEVER = new AbortController().signal

/** The parts that the whole way of a segment needs. */
const archiving = (log: ArchivedLog, url: string, folder: string): ArchiveDependencies => ({
  ...log,
  folder,
  location: databaseLocation(url),
  authority: { rootPem: '', intermediatePem: '', rotation: null },
  anchors: () => [],
  log: pino({ level: 'silent' }),
})

interface Way {
  readonly log: ArchivedLog
  readonly given: ArchiveDependencies
  readonly folder: string
  readonly archive: (last: number, changed?: Partial<ArchiveDependencies>) => Promise<void>
}

async function way(t: Test): Promise<Way> {
  const directory = t.testdir({ archive: {} })
  const folder = join(directory, 'archive')
  const url = await databaseUrl(directory)
  const log = await openArchivedLog(t, url)
  await recordCalls(log, 400)
  await log.sealer.seal()
  const given = archiving(log, url, folder)
  const archive = (last: number, changed: Partial<ArchiveDependencies> = {}) =>
    archiveRows({ ...given, ...changed }, last, NEVER)
  return { log, given, folder, archive }
}

/** The digests of the files of a pack of all rows, which is made with room for so many bytes of tables. */
async function packedWith({ log, given, folder }: Way, room: number): Promise<readonly string[]> {
  const scope = await scopeOf(log.database, null, null, NEVER)
  if (!scope) throw new Error('nothing is sealed')
  const path = join(folder, `${room}.zip`)
  writeFileSync(path, await buffer(packOf(given, scope, AT, NEVER, { room })))
  const zip = await openZip(path)
  const sums = await zip.bytes('SHA256SUMS', 1_000_000)
  zip.close()
  return sums.toString().split('\n').toSorted()
}

t.test('a pack is the same in however little room it is made', async (t) => {
  const made = await way(t)
  const wide = await packedWith(made, 1_000_000)
  t.ok(wide.some((line) => line.endsWith('  rows.csv')))
  t.same(await packedWith(made, 0), wide)
})

t.test('a zip with files behind 4 GiB, and of more, is read', { skip: withoutPython }, async (t) => {
  const path = join(t.testdir(), 'large.zip')
  const zip = new ZipWriter(AT)
  const large = Object.assign(new ZippedFile('large'), { size: 6 * GIB, packed: 5 * GIB })
  const [begin, end] = [zip.begin(large), zip.end(large)]
  const rest = Buffer.concat([zip.file('second', 'the bytes of the second'), zip.close()])
  const file = openSync(path, 'w')
  // A hole takes no room on the disk.
  writeSync(file, begin, 0, begin.length, 0)
  const behind = begin.length + 5 * GIB
  writeSync(file, end, 0, end.length, behind)
  writeSync(file, rest, 0, rest.length, behind + end.length)
  closeSync(file)
  const { stdout, stderr } = spawnSync('python3', ['-c', READ_SECOND, path], { encoding: 'utf8' })
  t.same([stdout, stderr], [`${large.size} the bytes of the second\n`, ''])
  const read = await openZip(path)
  t.equal(read.length('large'), large.size)
  t.equal((await read.bytes('second', 100)).toString(), 'the bytes of the second')
  read.close()
})

const GIB = 2 ** 30
const READ_SECOND = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as zip: print(zip.getinfo("large").file_size, zip.read("second").decode())`

const actionsIn = async ({ database }: ArchivedLog): Promise<readonly string[]> =>
  (await listRows(database.kysely, { order: 'asc', limit: 1_000 })).rows
    .map(({ action }) => action)
    .filter((action) => /^ledger\.(archived|removed)$/.test(action))

t.test('rows move into files one after the other, and what is left is sealed on', async (t) => {
  const { log, folder, archive } = await way(t)
  writeFileSync(join(folder, '.0-1023.zip.part'), 'of a process that ended before its end was another one')
  await archive(255)
  const [first] = [await newestSegment(log.database.kysely)]
  t.match(first, { first: 0, last: 255, file: '0-255.zip', removed_at: String })
  const bytes = readFileSync(join(folder, '0-255.zip'))
  t.equal(first?.sha256, hash('sha256', bytes))
  t.equal(first?.bytes, bytes.length)
  t.equal(await countPlaces(log.database, 0, first?.last_place ?? 0), 0)
  await recordCalls(log, 50, 400)
  await log.sealer.seal()
  await t.rejects(archive(767), /the row of the state before leaf 256 is behind leaf 767: archive more/)
  await recordCalls(log, 150, 500)
  await log.sealer.seal()
  await archive(1_023)
  t.same(readdirSync(folder).toSorted(), ['0-255.zip', '256-1023.zip', 'LOG'])
  // The rows of the first are in the second.
  t.same(await actionsIn(log), ['ledger.archived', 'ledger.removed'])
  await recordCalls(log, 10, 700)
  await log.sealer.seal()
  t.match(await isTreeAsSigned(log.database), { isWhole: true })
})

t.test('what stands in the way is said in a sentence, and nothing is removed', async (t) => {
  const { log, given, folder, archive } = await way(t)
  const last = await log.database.rowCounts.last()
  const count = () => countPlaces(log.database, 0, last)
  const before = await count()
  const cases: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
    [
      'a folder that is not there',
      () => archive(255, { folder: join(folder, 'none') }),
      /is not there: make it/,
    ],
    [
      'a link to a folder',
      () => {
        symlinkSync(folder, `${folder}-link`)
        return archive(255, { folder: `${folder}-link` })
      },
      /is no folder, or a link/,
    ],
    [
      'a file',
      () => {
        writeFileSync(`${folder}-file`, '')
        return archive(255, { folder: `${folder}-file` })
      },
      /is no folder/,
    ],
    [
      'the folder of another log',
      () => {
        mkdirSync(`${folder}-other`)
        writeFileSync(join(`${folder}-other`, 'LOG'), 'another+key\n')
        return archive(255, { folder: `${folder}-other` })
      },
      /holds the archive of another log, another\+key/,
    ],
    [
      'a folder in the place of the file',
      () => {
        mkdirSync(join(folder, '0-255.zip', 'x'), { recursive: true })
        return archive(255)
      },
      /cannot be written/,
    ],
    [
      'a folder in the place of what is half-written',
      () => {
        mkdirSync(join(folder, '.0-511.zip.part'))
        return archive(511).finally(() => rmSync(join(folder, '.0-511.zip.part'), { recursive: true }))
      },
      /0-511\.zip cannot be written: .*EISDIR/,
    ],
    [
      'a folder that does not say whose it is',
      () => {
        mkdirSync(join(`${folder}-odd`, 'LOG'), { recursive: true })
        return archive(255, { folder: `${folder}-odd` })
      },
      /LOG, which says whose archive this is, cannot be read/,
    ],
    ...(withoutTmpfs()
      ? []
      : ([
          [
            'a disk that is too small',
            () => archive(255, { folder: smallDisk(t, '128k') }),
            /there is no room for .*0-255\.zip: make room/,
          ],
          [
            'a disk of which the rest is for rows',
            () => {
              const disk = smallDisk(t, '8m')
              writeFileSync(join(disk, 'others'), Buffer.alloc(7_700_000))
              return archive(255, { folder: disk })
            },
            /there is no room for .*0-255\.zip/,
          ],
          [
            'a disk that cannot be written',
            () => archive(255, { folder: smallDisk(t, '8m,ro') }),
            /the folder .* cannot be written: .*EROFS/,
          ],
        ] as const)),
    ['rows that are not sealed', () => archive(1_023), /no checkpoint is over 1024 rows/],
    [
      'rows that an anchor has not seen',
      () => archive(511, { anchors: () => ['witness:w1'] }),
      /the anchor witness:w1 has no checkpoint of 512 rows/,
    ],
    ['an end inside a tile', () => archive(300), /ends with the last of 256 leaves/],
  ]
  for (const [what, attempt, sentence] of cases) {
    await t.rejects(attempt(), sentence, what)
    t.equal(await count(), before, what)
  }
  if (process.getuid?.() !== 0) {
    chmodSync(folder, 0o500)
    await t.rejects(archive(511), /cannot be written/)
    chmodSync(folder, 0o700)
  }
  t.same(await actionsIn(log), [])
  t.notOk(existsSync(join(folder, '.0-255.zip.part')), 'and nothing half-written is left')
  writeFileSync(join(folder, '0-511.zip'), 'of somebody else')
  await archiveRows(given, 511, NEVER)
  const { sha256, ...segment } = (await newestSegment(log.database.kysely)) ?? { sha256: '' }
  t.match(segment, { last: 511, removed_at: String })
  t.equal(sha256, hash('sha256', readFileSync(join(folder, '0-511.zip'))), 'a file in its place is not taken')
})

t.test('a way that was cut anywhere goes on, and no row is archived twice', async (t) => {
  const { log, given, folder, archive } = await way(t)
  const { ledger } = given
  // Each commit is the last one of a process in turn; so is the one that is stored, but not known to be.
  for (let commits = 0; ; commits += 1) {
    const isDoubtful = commits % 2 === 1
    let left = Math.floor(commits / 2)
    const dying: ArchiveDependencies['ledger'] = {
      commit: async (unit) => {
        left -= 1
        if (left >= 0) return ledger.commit(unit)
        if (isDoubtful) await ledger.commit(unit)
        throw new Error('the process ended')
      },
    }
    const ended = await archive(511, { ledger: dying }).then(
      () => true,
      (error: Error) => !/the process ended/.test(error.message) && /not with 511/.test(error.message),
    )
    writeFileSync(join(folder, '.0-511.zip.part'), 'half of it')
    if (ended) break
    if (commits === 40) return t.fail('it comes to no end')
  }
  t.same(await actionsIn(log), ['ledger.archived', 'ledger.removed'])
  const segment = await newestSegment(log.database.kysely)
  t.match(segment, { first: 0, last: 511, removed_at: String })
  t.equal(segment?.sha256, hash('sha256', readFileSync(join(folder, '0-511.zip'))))
  t.equal(await countPlaces(log.database, 0, segment?.last_place ?? 0), 0)
})
