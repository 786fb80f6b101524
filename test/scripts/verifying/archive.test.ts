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
import { archiveRows } from '../../../proxy/archive/archive.ts'
import { type ArchivedLog, openArchivedLog } from '../../support/archive.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { note } from '../../support/db/history.ts'
import { past } from '../../support/db/raw.ts'
import { sallyport } from '../../support/run.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const verify = allVerifiers(t)
const NEVER = new AbortController().signal

async function recordNotes({ ledger, sealer }: ArchivedLog, count: number): Promise<void> {
  await ledger.commit({ entries: Array.from({ length: count }, (_, n) => note('audit.reviewed', { n })) })
  await sealer.seal()
}

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
