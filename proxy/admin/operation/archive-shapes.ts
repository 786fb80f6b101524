import { z } from 'zod'
import { author, instant, sha256 } from './shapes.ts'

const bytes = z.int().min(0).meta({ description: 'About so many bytes.' })
const days = z.int().min(0).nullable()
const sentence = z.string().nullable()

/** The rows that would move now. */
export const archivePlan = z.strictObject({
  older_than: z.string().meta({ examples: ['90d'] }),
  segments: z.int().min(0),
  rows: z.int().min(0),
  days: z.int().min(0).meta({ description: 'The number of days on which they were recorded.' }),
  bytes,
  nothing: sentence.meta({ description: 'Why nothing would move. Null: something would.' }),
})

const segment = z.strictObject({
  file: z.string(),
  first: z.int().min(0),
  last: z.int().min(0),
  rows: z.int().min(1),
  since: instant,
  until: instant,
  bytes: z.int().min(0),
  sha256,
  state: z.enum(['waiting', 'removing', 'removed', 'forgotten']).meta({
    description:
      'Its rows wait for `confirm`, are about to go, or are in the file alone; or the file may be gone too.',
  }),
  confirmed_at: instant.nullable(),
  removed_at: instant.nullable(),
  forgotten_at: instant.nullable(),
  in_folder: z
    .boolean()
    .nullable()
    .meta({ description: 'Whether this gateway sees the file. Null: it cannot read the folder.' }),
})

const work = { what: z.enum(['schedule', 'run', 'restore']), file: z.string().nullable() }

/** The work that an operator has asked for, until it is done. */
export const archiveWork = z.strictObject({
  ...work,
  id: z.string(),
  by: author,
  at: instant,
  keep: sentence,
})

export const archiveOutcome = z.strictObject({
  ...work,
  id: z.string().nullable().meta({ description: 'The request that asked for it; null: the schedule.' }),
  at: instant,
  segments: z.int().min(0),
  rows: z.int().min(0),
  problem: sentence.meta({ description: 'Why nothing, or no more, was moved.' }),
})

const options = z.strictObject({
  keep: z.string(),
  to: z.string(),
  at: z.string(),
  confirm: z.boolean(),
  forget: z.string().nullable(),
})

/** The state of the archive that may need a person. */
export const archiveAlarm = z.strictObject({
  overdue: z
    .boolean()
    .meta({ description: 'Whether rows that are a day older than `keep` are in the database.' }),
  waiting: z.int().min(0).meta({ description: 'Segments that wait for `confirm`.' }),
  folder: z
    .strictObject({
      problem: sentence.meta({ description: 'Why this gateway cannot read it.' }),
      free_bytes: z.int().min(0).nullable(),
      unknown: z.array(z.string()).meta({
        description: 'Segments that the database does not know: it is older than they are.',
      }),
    })
    .nullable(),
  working: archiveWork.nullable(),
  last: archiveOutcome.nullable(),
})

export const archiveStanding = z.strictObject({
  ...archiveAlarm.shape,
  options: options.nullable().meta({ description: 'Null: there is no 90-archive.yaml.' }),
  here: z.strictObject({ rows: z.int().min(0), since: instant.nullable(), bytes }),
  archived: z.strictObject({
    segments: z.int().min(0),
    rows: z.int().min(0),
    bytes: z.int().min(0),
    since: instant.nullable(),
  }),
  next: archivePlan.nullable(),
  forecast: z.strictObject({
    rows_a_day: z.int().min(0),
    year_bytes: bytes.meta({ description: 'What a year of such days takes in the folder. About.' }),
    database_full_in_days: days.meta({ description: 'Null: not known, or no more rows stay than go.' }),
    folder_full_in_days: days.meta({ description: 'Null: not known.' }),
  }),
  keys: z.array(z.string()).meta({ description: 'The verifier keys of the log, the newest first.' }),
})

export const archiveList = z.strictObject({ ...archiveStanding.shape, segments: z.array(segment) })

export type ArchivePlan = Readonly<z.output<typeof archivePlan>>
export type ArchiveWork = Readonly<z.output<typeof archiveWork>>
export type ArchiveOutcome = Readonly<z.output<typeof archiveOutcome>>
export type ArchiveAlarm = Readonly<z.output<typeof archiveAlarm>>
export type ArchiveStanding = z.output<typeof archiveStanding>
export type ListedSegment = z.output<typeof segment>

const exportSink = z.strictObject({
  name: z.string(),
  kind: z.enum(['file', 'https', 'syslog']),
  target: z.string().meta({ description: 'Where rows go to, without the query of a URL.' }),
  format: z.enum(['ndjson', 'ocsf']),
  actions: z.array(z.string()).readonly().nullable().meta({ description: 'Null: all.' }),
  lag_rows: z.int().min(0).meta({ description: 'The rows that it has not taken yet.' }),
  waiting_since: instant.nullable().meta({
    description: 'When the oldest of them was recorded, as far as it is in the database.',
  }),
  failing_since: instant.nullable(),
  error: z.string().nullable().meta({ description: 'Why its last page was not taken.' }),
  late: z.boolean().meta({ description: 'Whether it has been behind, or failing, for 5 minutes.' }),
  cursors: z
    .array(z.strictObject({ stream: z.string(), seq: z.int().min(0), head: z.int().min(0) }))
    .max(100)
    .readonly()
    .meta({ description: 'Streams, the furthest behind first: the last row that was taken, and the last.' }),
})

/** The sinks of `85-export.yaml`, and how far each is. */
export const exportList = z.strictObject({ sinks: z.array(exportSink) })

export type ExportStanding = Readonly<z.output<typeof exportSink>>
