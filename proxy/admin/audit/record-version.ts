import type { Database } from '../../../db/database.ts'
import { detailsOf } from '../../../db/ledger/read/find.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { listSegments } from '../../../db/ledger/tree/segments.ts'
import { snapshotOf } from '../../../db/mcp/authority.ts'
import { listMcpBindings } from '../../../db/mcp/bindings.ts'
import { listMcpResources, type McpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { authorityDetail, authorityState } from '../../../db/principals/authority.ts'
import { listPrincipals, type PrincipalRecord } from '../../../db/principals/read.ts'
import { insertSubjectKey, sealedSubjectKey } from '../../../db/principals/subject-keys.ts'
import { trustedCasByAgent } from '../../../db/principals/trusted-cas.ts'
import { readSetting, type SettingKey, writeSetting } from '../../../db/settings.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import { type AuditNote, noteEntry } from '../../../plugins/audit/entries.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'

/** Settings that say that the authority of before has been written down. */
const MARKS = ['record_version', 'trusted_cas_recorded', 'bound_recorded'] as const

export async function lackingMarks(database: Database): Promise<readonly SettingKey[]> {
  const values = await Promise.all(MARKS.map((mark) => readSetting(database, mark)))
  return MARKS.filter((_, index) => values[index] === undefined)
}

/** Tells whether a start has found all marks: one that is lacking since was deleted. */
export async function hadMarks({ kysely }: Database): Promise<boolean> {
  // Only a version that sets them archives rows.
  if ((await listSegments(kysely)).length > 0) return true
  for await (const { detail } of detailsOf(kysely, { action: 'service.started' }))
    if (detail.recorded === true) return true
  return false
}

/** Sets marks that somebody has deleted. */
export const restoreMarks = (database: Database, marks: readonly SettingKey[], at: number) =>
  marks.map((mark) => writeSetting(database, mark, mark === 'record_version' ? VERSION : 'true', at))

/** Principals whose rows are written in one unit. */
const AT_ONCE = 128

/**
 * Records once which attached CAs vouch for each agent enrolled by its SPIFFE id before that was kept
 * (docs/ledger.md#replay). After a crash rows are repeated; they say the same. Resolves with their number.
 */
export async function recordTrustedCas({
  database,
  ledger,
  configDigest,
  at,
}: Omit<RecordBackfillDependencies, 'subjectKeys'>): Promise<number> {
  if ((await readSetting(database, 'trusted_cas_recorded')) !== undefined) return 0
  const agents = [...(await trustedCasByAgent(database))]
  for (const group of portionsOf(agents, AT_ONCE)) {
    const entries = group.map(([subject, digests]) =>
      noteEntry(
        { action: 'authority.trusted_cas', detail: { subject, trusted_cas: digests } },
        at,
        configDigest,
      ),
    )
    await ledger.commit({ entries })
  }
  await ledger.commit({
    statements: [writeSetting(database, 'trusted_cas_recorded', 'true', at)],
    entries: [],
  })
  return agents.length
}

const VERSION = '2'
const TYPES = ['agent', 'user', 'workload'] as const
/** Bindings that one row names. */
const PORTION = 200

interface RecordBackfillDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly subjectKeys: Pick<SubjectKeys, 'makeFor'>
  readonly configDigest: string
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Records once the authority from before the second version of the record: a row `authority.snapshot` for
 * each principal and resource (docs/ledger.md#replay). A principal's commitment key is stored in the same
 * unit, so a crash repeats rows of resources alone. Resolves with the number of rows.
 */
export async function backfillRecordV2(sources: RecordBackfillDependencies): Promise<number> {
  const { database, ledger, at } = sources
  if ((await readSetting(database, 'record_version')) === VERSION) return 0
  const keyOf = sealedSubjectKey(database)
  let rows = 0
  for (const type of TYPES) {
    for (const group of portionsOf((await listPrincipals(database, type)).items, AT_ONCE)) {
      const written = await Promise.all(
        group.map(async (record) =>
          (await keyOf(record.principal_ref)) === undefined ? writePrincipal(sources, record) : 0,
        ),
      )
      rows += written.reduce((sum, count) => sum + count, 0)
    }
  }
  for (const resource of await listMcpResources(database)) rows += await writeResource(sources, resource)
  await ledger.commit({ statements: [writeSetting(database, 'record_version', VERSION, at)], entries: [] })
  return rows
}

async function writePrincipal(sources: RecordBackfillDependencies, record: PrincipalRecord): Promise<number> {
  const { database, ledger, subjectKeys, configDigest, at } = sources
  const { principal_id: id, principal_ref: ref, principal_type: type } = record
  const key = insertSubjectKey(database, { type, id, ref, sealed: subjectKeys.makeFor(ref) })
  const notes = await principalNotes(database, record, at)
  const entries = notes.map((note) => noteEntry(note, at, configDigest))
  await ledger.commit({ statements: [key], entries })
  return entries.length
}

async function writeResource(
  { database, ledger, configDigest, at }: RecordBackfillDependencies,
  resource: McpResource,
): Promise<number> {
  const details = snapshotOf(resource, await listMcpTools(database, resource.resource_id))
  const notes = details.map((detail) => ({ action: 'authority.snapshot', detail }))
  await ledger.commit({ entries: notes.map((note) => noteEntry(note, at, configDigest)) })
  return notes.length
}

async function principalNotes(
  database: Database,
  record: PrincipalRecord,
  at: number,
): Promise<readonly AuditNote[]> {
  const { principal_id: principalId, principal_type: type, authority_revision: revision } = record
  const detail = authorityDetail(record, revision, await authorityState(database, record, at))
  const bindings = (await listMcpBindings(database, { principalId }))
    .filter(({ principal_type: own }) => own === type)
    .map(({ binding_id, resource_id }) => [binding_id, resource_id] as const)
  // A row says the state, also if there are no bindings.
  const [first = [], ...rest] = portionsOf(bindings, PORTION)
  return [first, ...rest].map((portion) => ({
    action: 'authority.snapshot',
    detail: { ...detail, principal_type: type, bindings: portion },
  }))
}
