import { existsSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import type { z } from 'zod'
import type { ArchivePlan, archiveList } from '../../proxy/admin/operation/archive-shapes.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { commandOf, JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines, printProgress } from '../print.ts'

const ARCHIVE = '/v1/admin/archive'
const ONE_FILE = `name one file: ${commandOf('sallyport ARGS="archive list"', 'archive list')} shows them`
const LOOK_MS = 250

type ShownArchive = z.output<typeof archiveList>

const fileOf = (file: string): string => `${ARCHIVE}/${encodeURIComponent(file)}`

const segmentsOf = (count: number): string => `${count} segment${count === 1 ? '' : 's'}`

const sizeOf = (bytes: number): string =>
  bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`

const shown = async (call: AdminCall, query = ''): Promise<ShownArchive> =>
  expectStatus<ShownArchive>(await call('GET', `${ARCHIVE}${query}`), 200)

/** Waits until work that was asked for is done. Throws the sentence that it failed with. */
async function done(call: AdminCall, id: string): Promise<NonNullable<ShownArchive['last']>> {
  for (;;) {
    const { working, last, here } = await shown(call, '?limit=1')
    if (last?.id === id) {
      printProgress(null)
      if (last.problem !== null) throw new Error(last.problem)
      return last
    }
    if (working?.id !== id) throw new Error('the gateway knows of this work no more: ask it again')
    printProgress(`${here.rows} rows are in the database`)
    await wait(LOOK_MS)
  }
}

const now = subcommandOf({
  takes: '',
  about: 'move old rows to the archive; also meant by `sallyport archive` alone',
  options: {
    'older-than': {
      type: 'string',
      value: 'SPAN',
      description: '90d, 12w or 7y; default: `keep` of 90-archive.yaml',
    },
    'dry-run': { type: 'boolean', default: false, description: 'say what would move, and move nothing' },
    ...JSON_OPTION,
  },
  misuse: 'it takes no argument, but --older-than SPAN',
  run: async ({ call, say, values: { 'older-than': olderThan, 'dry-run': isDry, json } }) => {
    const body = olderThan === undefined ? {} : { older_than: olderThan }
    const path = isDry ? `${ARCHIVE}?dry_run=true` : ARCHIVE
    const plan = expectStatus<ArchivePlan & { readonly asked: string | null }>(
      await call('POST', path, body),
      200,
    )
    const { segments, rows, days, bytes, nothing, asked, older_than: span } = plan
    const last = asked === null ? null : await done(call, asked)
    if (json) return say(...jsonLines([last ?? plan]))
    if (nothing !== null) return say(`nothing is older than ${span}: ${nothing}`)
    if (last) return say(`${last.rows} rows were moved, in ${segmentsOf(last.segments)}`)
    say(
      `${rows} rows of ${days} days would be moved, in ${segmentsOf(segments)} of about ${sizeOf(bytes)} together`,
    )
  },
})

function standingLines(archive: ShownArchive): readonly string[] {
  const { options, folder, here, archived, overdue, waiting, working, last, forecast } = archive
  const { rows_a_day: rate, year_bytes: year, database_full_in_days: database } = forecast
  const full = [
    ...(database === null ? [] : [`the database in ${database} days`]),
    ...(forecast.folder_full_in_days === null ? [] : [`the folder in ${forecast.folder_full_in_days} days`]),
  ]
  return [
    options
      ? `keep ${options.keep}, archive to ${options.to} at ${options.at} UTC`
      : 'there is no 90-archive.yaml',
    `in the database: ${here.rows} rows${here.since === null ? '' : ` since ${here.since}`}, about ${sizeOf(here.bytes)}`,
    `archived: ${archived.rows} rows in ${segmentsOf(archived.segments)}, ${sizeOf(archived.bytes)}`,
    `a day: ${rate} rows; a year in the archive: about ${sizeOf(year)}`,
    ...(full.length > 0 ? [`full, at this rate: ${full.join(', ')}`] : []),
    ...(overdue ? ['OVERDUE: rows that are a day older than that are in the database'] : []),
    ...(waiting > 0 ? [`waiting for archive confirm: ${segmentsOf(waiting)}`] : []),
    ...(working
      ? [
          `under way: ${working.what}${working.file === null ? '' : ` ${working.file}`}, asked for by ${working.by}`,
        ]
      : []),
    ...(typeof last?.problem === 'string' ? [`FAILED at ${last.at}: ${last.problem}`] : []),
    ...(typeof folder?.problem === 'string' ? [`the folder cannot be read: ${folder.problem}`] : []),
    ...(folder?.unknown ?? []).map(
      (file) => `${file} is in the folder, and the database does not know it: archive restore ${file}`,
    ),
  ]
}

const list = subcommandOf({
  takes: '',
  about: 'what is where: the segments, the newest first, and what the archive takes',
  options: {
    limit: { type: 'string', value: 'N', default: '100', description: 'at most so many segments' },
    before: { type: 'string', value: 'LEAF', description: 'those before the one that begins with this leaf' },
    ...JSON_OPTION,
  },
  run: async ({ call, say, values: { limit, before, json } }) => {
    const query = new URLSearchParams({ limit, ...(before !== undefined && { before }) }).toString()
    const archive = await shown(call, `?${query}`)
    if (json) return say(...jsonLines([archive]))
    say(...standingLines(archive))
    if (archive.segments.length === 0) return
    const rows = archive.segments.map((one) => [
      ...[one.file, one.state, one.in_folder === false ? 'MISSING' : one.in_folder ? 'there' : '?'],
      ...[String(one.rows), sizeOf(one.bytes), one.since, one.until, one.sha256],
    ])
    say(...alignColumns([['FILE', 'STATE', 'FOLDER', 'ROWS', 'SIZE', 'SINCE', 'UNTIL', 'SHA-256'], ...rows]))
  },
})

const confirm = subcommandOf({
  takes: 'FILE',
  about: 'say that a copy elsewhere holds the file: with `confirm: true` its rows go only then',
  misuse: ONE_FILE,
  options: { sha256: { type: 'string', value: 'HEX', description: 'the digest of that copy' } },
  check: ({ sha256 }) => {
    if (sha256 === undefined)
      throw new Error('give the digest of the copy: --sha256 HEX, as sha256sum prints it')
  },
  run: async ({ call, say, args: [file], values: { sha256 } }) => {
    expectStatus(await call('POST', `${fileOf(file)}/confirm`, { sha256 }), 204)
    say(`${file} is confirmed: its rows may go`)
  },
})

const forget = subcommandOf({
  takes: 'FILE',
  about: 'say that the file may go, and its rows for ever: a row says so, the tree stays, nothing is deleted',
  misuse: ONE_FILE,
  options: {
    reason: {
      type: 'string',
      value: 'TEXT',
      description: 'why, if it is younger than `forget`, or not confirmed',
    },
  },
  run: async ({ call, say, args: [file], values: { reason } }) => {
    expectStatus(await call('POST', `${fileOf(file)}/forget`, reason === undefined ? {} : { reason }), 204)
    say(`${file} is forgotten: delete it when you like`)
  },
})

const restore = subcommandOf({
  takes: 'FILE',
  about: `put a lost file back from FILE.copy in the folder; or, if the database is a copy from before the file,
archive its rows again`,
  misuse: ONE_FILE,
  run: async ({ call, say, args: [file] }) => {
    const { asked } = expectStatus<{ asked: string }>(await call('POST', `${fileOf(file)}/restore`), 200)
    const { rows } = await done(call, asked)
    say(
      rows > 0
        ? `${file} is archived again: ${rows} rows`
        : `${file} is in its place, and is what was archived`,
    )
  },
})

const verify = subcommandOf({
  takes: '',
  about:
    'verify all files in the folder, on this machine, as `sallyport verify DIR` does; exit codes as there',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const { options, keys, folder } = await shown(call, '?limit=1')
    if (!options) throw new Error('there is no 90-archive.yaml, which names the folder')
    if (!existsSync(options.to))
      throw new Error(
        `${options.to} is not on this machine: run this on the gateway’s, or sallyport verify DIR`,
      )
    const { verb: verifying } = await import('./verify.ts')
    const trusted = keys.flatMap((key) => ['--key', key])
    const code = await verifying.run([options.to, ...trusted, ...(json ? ['--json'] : [])])
    const faults = [...(await missing(call)), ...(folder?.unknown ?? []).map(unknownText)]
    if (!json) say(...faults)
    return code === 0 && faults.length > 0 ? 2 : code
  },
})

const unknownText = (file: string): string =>
  `BAD: ${file} is not known to the database, which is older: sallyport archive restore ${file}`

async function missing(call: AdminCall): Promise<readonly string[]> {
  const found: string[] = []
  for (let before = ''; ; ) {
    const { segments } = await shown(call, `?limit=999${before}`)
    for (const { file, in_folder: there, state } of segments)
      if (there === false && state !== 'forgotten') found.push(`BAD: ${file} is not in the folder`)
    const last = segments.at(-1)
    if (!last || last.first === 0) return found
    before = `&before=${last.first}`
  }
}

export const verb = verbGroup({
  name: 'archive',
  about: `Moves old rows of the ledger to files that verify by themselves, and looks after those (docs/operating.md#archive). ${DOOR_NOTES}`,
  verbs: { now, list, confirm, verify, forget, restore },
  usual: 'now',
  notes: `Moving and restoring is done by the gateway that leads, one after the other; the command waits until it is done. Changes require
admin.settings.`,
})
