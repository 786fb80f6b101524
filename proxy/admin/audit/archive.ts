import { z } from 'zod'
import { markSegment, type StoredSegment, segmentOfFile } from '../../../db/ledger/tree/segments.ts'
import { insertSetting, readSetting } from '../../../db/settings.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import { conflict, notFound, unprocessableBody } from '../../../plugins/refusal.ts'
import { type ArchiveWork, archiveList, archivePlan } from '../operation/archive-shapes.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { pageLimit, sha256, span } from '../operation/shapes.ts'

const USUAL = 100

/** GET /v1/admin/archive: what is where (docs/operating.md#archive). */
export const showArchive = readOperation({
  name: 'getArchive',
  summary:
    'Shows the archive: what is where, what would move next, what it takes, and the segments, newest first.',
  takes: {
    query: z.strictObject({
      limit: pageLimit(USUAL),
      before: z
        .string()
        .regex(/^\d{1,15}$/, 'must be the first leaf of a segment')
        .transform(Number)
        .exactOptional()
        .meta({ type: 'integer', minimum: 0 }),
    }),
  },
  output: archiveList,
  paged: true,
  run: async ({ archive }, { query: { limit, before = Number.MAX_SAFE_INTEGER } }, { at }) => {
    const segments = [...(await archive.list(before, limit))]
    const { first = 0 } = segments.at(-1) ?? {}
    return {
      value: { ...(await archive.standing(at)), segments },
      next: first === 0 ? null : { limit: String(limit), before: String(first) },
    }
  },
})

const CHANGE = {
  demands: 'admin.settings',
  twoPersonKind: 'archive',
} as const

const params = z.object({ file: z.string().max(64) })

const NO_FILE = 'Nothing is archived: write 90-archive.yaml, with the folder (docs/operating.md#archive).'

/** Refuses with `conflict` if no file names a folder. */
function optionsOf({ archive: { options } }: AdminContext) {
  if (!options) throw conflict(NO_FILE)
  return options
}

const archived = async ({ database }: AdminContext, file: string): Promise<StoredSegment> => {
  const found = await segmentOfFile(database.kysely, file)
  if (!found)
    throw notFound(
      `No row says that a file ${JSON.stringify(file)} was archived. GET /v1/admin/archive lists them.`,
    )
  return found
}

/** Stores work for the process that leads. Refuses with `conflict` while another is asked for. */
const askForWork = (
  context: AdminContext,
  caller: AdminCaller,
  { what, file, keep }: Pick<ArchiveWork, 'what' | 'file' | 'keep'>,
): Promise<void> =>
  // One after the other: each sees the one before it.
  context.oneAtATime.run('archive', async () => {
    const { database, archive } = context
    const { id, at, actor } = caller
    const underWay = await readSetting(database, 'archive_asked')
    if (underWay !== undefined) {
      const { working } = await archive.alarm(at)
      throw conflict(
        `Work on the archive is under way${working ? `, asked for by ${working.by} at ${working.at}` : ''}. Wait until it is done: GET /v1/admin/archive says so.`,
      )
    }
    const work: ArchiveWork = { what, file, keep, id, by: actor.id, at: new Date(at).toISOString() }
    await commitChange(context, caller, {
      action: 'archive.asked',
      detail: { what, ...(file === null ? { older_than: keep } : { file }) },
      statements: [asUpkeep(insertSetting(database, 'archive_asked', JSON.stringify(work), at))],
    })
    archive.wake()
  })

const asUpkeep = (statement: LedgerStatement): LedgerStatement => ({ ...statement, beside: 'upkeep' })

const asked = z.string().nullable().meta({
  description: 'The request, as `working` and `last` of the archive name it. Null: there is nothing to do.',
})

/** POST /v1/admin/archive: moves old rows now, in the process that leads. */
export const runArchive = operation({
  ...CHANGE,
  name: 'runArchive',
  action: 'archive.asked',
  summary: 'Has rows that are old enough moved to the archive now. `dry_run`: says what would move.',
  takes: {
    query: z.strictObject({
      dry_run: z
        .enum(['true', 'false'])
        .transform((text) => text === 'true')
        .exactOptional()
        .meta({ type: 'string', enum: ['true', 'false'] }),
    }),
    body: z.strictObject({
      older_than: span.exactOptional().meta({ description: 'Default: `keep` of 90-archive.yaml.' }),
    }),
  },
  output: z.strictObject({ ...archivePlan.shape, asked }),
  reasons: ['conflict', 'audit_unavailable'],
  example: { older_than: '90d' },
  preview: async (context, { body }, { at }) => {
    const { keep } = optionsOf(context)
    return { value: { ...(await context.archive.plan(body.older_than ?? keep, at)), asked: null } }
  },
  run: async (context, { body }, caller) => {
    const { keep: usual } = optionsOf(context)
    const keep = body.older_than ?? usual
    const plan = await context.archive.plan(keep, caller.at)
    const { last } = await context.archive.alarm(caller.at)
    // After a failure the next try says that there is none any more.
    if (plan.nothing !== null && typeof last?.problem !== 'string') return { value: { ...plan, asked: null } }
    await askForWork(context, caller, { what: 'run', file: null, keep })
    return { value: { ...plan, asked: caller.id } }
  },
})

/** POST /v1/admin/archive/{file}/restore: puts a file back, or makes it again, in the process that leads. */
export const restoreSegment = operation({
  ...CHANGE,
  name: 'restoreSegment',
  action: 'archive.asked',
  summary:
    'Puts a lost file back from the copy `FILE.copy` in the folder; or, if the database is older than the file, archives its rows again.',
  takes: { params },
  output: z.strictObject({ asked }),
  reasons: ['conflict', 'not_found', 'audit_unavailable'],
  run: async (context, { params: { file } }, caller) => {
    optionsOf(context)
    const { folder } = await context.archive.standing(caller.at)
    if (!folder?.unknown.includes(file)) await archived(context, file)
    await askForWork(context, caller, { what: 'restore', file, keep: null })
    return { value: { asked: caller.id } }
  },
})

const rowsGo = ({ removed_at: at }: StoredSegment): string =>
  `Its rows left the database on ${at?.slice(0, 10)}`

/** POST /v1/admin/archive/{file}/confirm: says that a copy elsewhere holds the file. */
export const confirmSegment = emptyOperation({
  ...CHANGE,
  name: 'confirmSegment',
  action: 'ledger.confirmed',
  summary: 'Confirms that a copy of a file of the archive is elsewhere: its rows may go.',
  takes: { params, body: z.strictObject({ sha256 }) },
  reasons: ['conflict', 'not_found', 'precondition_failed', 'audit_unavailable'],
  example: { sha256: 'c0'.repeat(32) },
  run: async (context, { params: { file }, body }, caller) => {
    const segment = await archived(context, file)
    const { first, last, confirmed_at: confirmed } = segment
    if (body.sha256 !== segment.sha256)
      throw unprocessableBody([
        { field: 'sha256', message: `is not that of ${file}, which is ${segment.sha256}` },
      ])
    if (segment.removed_at !== null) throw conflict(`${rowsGo(segment)}: there is nothing to confirm.`)
    if (confirmed !== null) throw conflict(`It was confirmed on ${confirmed.slice(0, 10)}.`)
    const { kysely } = context.database
    await commitChange(context, caller, {
      action: 'ledger.confirmed',
      detail: { file, first, last, sha256: segment.sha256 },
      statements: [markSegment(kysely, segment, 'confirmed_at', caller.at)],
    })
    context.archive.wake()
  },
})

/** POST /v1/admin/archive/{file}/forget: says that the file may go. The tree stays. */
export const forgetSegment = emptyOperation({
  ...CHANGE,
  name: 'forgetSegment',
  action: 'ledger.forgotten',
  summary: 'Says that a file of the archive may go, and with it its rows for ever. The tree stays.',
  takes: {
    params,
    body: z.strictObject({
      reason: z.string().trim().min(1, 'must say why').max(500).exactOptional().meta({
        description: 'Needed before the age of `forget`, or if no copy is confirmed though `confirm` is on.',
      }),
    }),
  },
  reasons: ['conflict', 'not_found', 'precondition_failed', 'audit_unavailable'],
  example: { reason: 'the retention of this period has ended' },
  run: async (context, { params: { file }, body: { reason } }, caller) => {
    const { options, mayForget } = context.archive
    const segment = await archived(context, file)
    const { first, last, sha256: digest, forgotten_at: forgotten } = segment
    if (forgotten !== null) throw conflict(`It was forgotten on ${forgotten.slice(0, 10)}.`)
    const isUnconfirmed = options?.confirm === true && segment.confirmed_at === null
    if (segment.removed_at === null)
      throw conflict(
        `Its rows are still in the database${isUnconfirmed ? ', because no copy of it is confirmed' : ''}: it is forgotten after they are gone.`,
      )
    if (reason === undefined && isUnconfirmed)
      throw conflict('No copy of it is confirmed, and its rows are nowhere else. Give a reason to forget it.')
    if (reason === undefined && !mayForget(segment.until, caller.at))
      throw conflict(
        options?.forget
          ? `Its rows are of up to ${segment.until.slice(0, 10)}, and not ${options.forget} old. Give a reason to forget it.`
          : '90-archive.yaml has no `forget`: nothing is old enough by itself. Give a reason to forget it.',
      )
    await commitChange(context, caller, {
      action: 'ledger.forgotten',
      detail: { file, first, last, sha256: digest, ...(reason !== undefined && { reason }) },
      statements: [markSegment(context.database.kysely, segment, 'forgotten_at', caller.at)],
    })
  },
})
