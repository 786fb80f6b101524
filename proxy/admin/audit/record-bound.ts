import { hash } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { listMcpResources } from '../../../db/mcp/resources.ts'
import { caDigests } from '../../../db/principals/ca-texts.ts'
import type { PreviousBundle } from '../../../db/principals/spiffe.ts'
import { readSetting, writeSetting } from '../../../db/settings.ts'
import { identityDigest, wordsDigests } from '../../../db/stored-authority.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'

/** Rows that are written in one unit. */
const AT_ONCE = 128

interface BoundRecording {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: string
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Writes down, once, what the tables hold that rows of earlier versions do not bind: rows `authority.bound`
 * (docs/ledger.md#replay). After a crash in between, rows are repeated; they say the same. Resolves with the
 * number of rows.
 */
export async function recordBound({ database, ledger, configDigest, at }: BoundRecording): Promise<number> {
  if ((await readSetting(database, 'bound_recorded')) !== undefined) return 0
  const details = [
    ...(await bundles(database)),
    ...(await waysIn(database)),
    ...(await servers(database)),
    ...(await secret(database)),
  ]
  for (const some of portionsOf(details, AT_ONCE)) {
    const entries = some.map((detail) => noteEntry({ action: 'authority.bound', detail }, at, configDigest))
    await ledger.commit({ entries })
  }
  await ledger.commit({ statements: [writeSetting(database, 'bound_recorded', 'true', at)], entries: [] })
  return details.length
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
