import { hash } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import { detailsOf } from '../../../db/ledger/read/find.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { listSegments } from '../../../db/ledger/tree/segments.ts'
import { snapshotOf } from '../../../db/mcp/authority.ts'
import { listMcpBindings } from '../../../db/mcp/bindings.ts'
import { listMcpResources, type McpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { authorityDetail, authorityState } from '../../../db/principals/authority.ts'
import { caDigests } from '../../../db/principals/ca-texts.ts'
import { listPrincipals, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { PreviousBundle } from '../../../db/principals/spiffe.ts'
import { insertSubjectKey, sealedSubjectKey } from '../../../db/principals/subject-keys.ts'
import { trustedCasByAgent } from '../../../db/principals/trusted-cas.ts'
import { readSetting, type SettingKey, writeSetting } from '../../../db/settings.ts'
import { identityDigest, wordsDigests } from '../../../db/stored-authority.ts'
import type { JsonObject } from '../../../db/support/json.ts'
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

/** Rows, or principals whose rows, are written in one unit. */
const AT_ONCE = 128

interface RecordBackfillDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly subjectKeys: Pick<SubjectKeys, 'makeFor'>
  readonly configDigest: string
  /** ms since the epoch. */
  readonly at: number
}

type OnceDependencies = Omit<RecordBackfillDependencies, 'subjectKeys'>

/**
 * Writes down, once, what the tables hold that rows of earlier versions do not bind: rows `authority.bound`
 * (docs/ledger.md#replay). Resolves with the number of rows.
 */
export const recordBound = (sources: OnceDependencies): Promise<number> =>
  recordOnce(sources, 'bound_recorded', 'authority.bound', async (database) => [
    ...(await bundles(database)),
    ...(await waysIn(database)),
    ...(await servers(database)),
    ...(await secret(database)),
  ])

/**
 * Records once which attached CAs vouch for each agent enrolled by its SPIFFE id before that was kept
 * (docs/ledger.md#replay). Resolves with the number of rows.
 */
export const recordTrustedCas = (sources: OnceDependencies): Promise<number> =>
  recordOnce(sources, 'trusted_cas_recorded', 'authority.trusted_cas', async (database) =>
    [...(await trustedCasByAgent(database))].map(([subject, digests]) => ({ subject, trusted_cas: digests })),
  )

/** Writes rows unless the setting says that they are written. After a crash rows are repeated; they say the same. */
async function recordOnce(
  { database, ledger, configDigest, at }: OnceDependencies,
  setting: 'bound_recorded' | 'trusted_cas_recorded',
  action: string,
  detailsIn: (database: Database) => Promise<readonly JsonObject[]>,
): Promise<number> {
  if ((await readSetting(database, setting)) !== undefined) return 0
  const details = await detailsIn(database)
  for (const some of portionsOf(details, AT_ONCE))
    await ledger.commit({ entries: some.map((detail) => noteEntry({ action, detail }, at, configDigest)) })
  await ledger.commit({ statements: [writeSetting(database, setting, 'true', at)], entries: [] })
  return details.length
}

const VERSION = '2'
const TYPES = ['agent', 'user', 'workload'] as const
/** Bindings that one row names. */
const PORTION = 200

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

async function bundles({ kysely }: Database): Promise<readonly JsonObject[]> {
  const agents = await kysely
    .selectFrom('internal_agents')
    .select(['agent_id', 'spiffe_bundle', 'previous_spiffe_bundles'])
    .where('enrollment_method', '=', 'spiffe')
    .where('spiffe_id', 'is not', null)
    .orderBy('agent_id')
    .execute()
  return agents.map(({ agent_id: subject, spiffe_bundle: pem, previous_spiffe_bundles: before }) => {
    const previous: readonly PreviousBundle[] = JSON.parse(before ?? '[]')
    return {
      subject,
      trust_bundle: pem === null ? [] : caDigests(pem),
      previous_bundles: previous.map(([text, until]) => [caDigests(text), until]),
    }
  })
}

async function waysIn({ kysely }: Database): Promise<readonly JsonObject[]> {
  const keys = await kysely.selectFrom('api_keys').selectAll().orderBy('key_id').execute()
  const people = await kysely.selectFrom('operator_identities').selectAll().orderBy('principal_id').execute()
  return [
    ...keys.map(({ principal_id: subject, key_id: id, key_hash: stored }) => ({
      subject,
      api_key: [id, hash('sha256', stored)],
    })),
    ...people.map(({ principal_id: subject, issuer, subject: person }) => ({
      subject,
      identity_sha256: identityDigest(issuer, person),
    })),
  ]
}

async function servers(database: Database): Promise<readonly JsonObject[]> {
  return (await listMcpResources(database)).map(
    ({ resource_id, server_facts: facts, endpoint_url, auth_type, auth_secret_ref, allowed_domains }) => ({
      ...{ resource_id, auth_type, auth_secret_ref, allowed_domains },
      endpoint_url_sha256: hash('sha256', endpoint_url),
      ...wordsDigests(facts ?? {}),
    }),
  )
}

async function secret(database: Database): Promise<readonly JsonObject[]> {
  const stored = await readSetting(database, 'admin_secret_hash')
  return stored === undefined ? [] : [{ secret_sha256: hash('sha256', stored) }]
}
