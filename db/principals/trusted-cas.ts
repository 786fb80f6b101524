import { type InferResult, sql } from 'kysely'
import type { Database } from '../database.ts'
import { allPages, noPause, type PagePause } from '../support/pages.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'
import type { AttachedCa } from './attached-cas.ts'

export interface SpiffeCa {
  /** The one that rows say. */
  readonly digest: string
  readonly pem: string
  /** True: it vouches for that agent. */
  readonly vouches: boolean
}

/**
 * Reads the attached SPIFFE CAs, oldest first, and which vouch for an agent. One question, compiled once:
 * each request of an SVID asks it.
 */
export function spiffeCasFor({ kysely }: Database): (agentId: string) => Promise<readonly SpiffeCa[]> {
  const query = kysely
    .selectFrom('attached_cas as c')
    .leftJoin('agent_trusted_cas as t', (join) =>
      join.onRef('t.ca_digest', '=', 'c.digest').on('t.agent_id', '=', ''),
    )
    .select(['c.digest', 'c.ca_pem', 't.agent_id'])
    .where('c.kind', '=', sql.lit('spiffe' as const))
    .orderBy('c.attached_at')
    .orderBy('c.digest')
  type Row = InferResult<typeof query>[number]
  const compiled = query.compile()
  return async (agentId) => {
    const { rows } = await kysely.executeQuery<Row>({ ...compiled, parameters: [agentId] })
    return rows.map(({ digest, ca_pem: pem, agent_id: agent }) => ({ digest, pem, vouches: agent !== null }))
  }
}

/** Asserts that a CA still vouches for an agent: an attached one, one of its own, or one of a bundle before. */
export function caStillVouches({ kysely }: Database): (agentId: string, digest: string) => RowAssertion {
  const { sql: text } = kysely
    .selectFrom('internal_agents as a')
    .select(sql.lit(1).as('holds'))
    .where('a.agent_id', '=', '')
    .where((row) =>
      row.or([
        row('a.spiffe_bundle_digests', 'like', ''),
        row('a.previous_spiffe_bundles', 'like', ''),
        row.exists(
          row
            .selectFrom('agent_trusted_cas as t')
            .select('t.ca_digest')
            .whereRef('t.agent_id', '=', 'a.agent_id')
            .where('t.ca_digest', '=', ''),
        ),
      ]),
    )
    .compile()
  return (agentId, digest) => {
    const holding = `%"${digest}"%`
    return { sql: text, parameters: [agentId, holding, holding, digest] }
  }
}

export interface TrustedCa extends Pick<AttachedCa, 'digest' | 'subject' | 'not_after'> {
  readonly trusted_at: string
  /** A name in the ledger. Null: from before it was recorded. */
  readonly trusted_by: string | null
}

export function trustedCasOf({ kysely }: Database, agentId: string): Promise<TrustedCa[]> {
  return kysely
    .selectFrom('agent_trusted_cas as t')
    .innerJoin('attached_cas as c', 'c.digest', 't.ca_digest')
    .select(['c.digest', 'c.subject', 'c.not_after', 't.trusted_at', 't.trusted_by'])
    .where('t.agent_id', '=', agentId)
    .orderBy('t.trusted_at')
    .orderBy('c.digest')
    .execute()
}

export interface CaReliance {
  /** The number of agents that it vouches for. */
  readonly agents: number
  /** The number of these agents for which no other CA vouches. */
  readonly alone: number
  readonly named: readonly string[]
}

const MAX_NAMED = 50

/** Counts the agents that rest on each CA, by its digest; none: no entry. Pauses between pages. */
export async function caReliance(
  db: Database,
  pause: PagePause = noPause,
): Promise<ReadonlyMap<string, CaReliance>> {
  const found = new Map<string, { agents: number; alone: number; named: string[] }>()
  const rows = await allPages<TrustRow>((after, limit) => trustPage(db, after).limit(limit).execute(), pause)
  for (const [index, { agent_id: id, ca_digest: digest, is_active: isActive }] of rows.entries()) {
    if (isActive !== 1) continue
    const of = found.get(digest) ?? { agents: 0, alone: 0, named: [] }
    found.set(digest, of)
    of.agents += 1
    // Sorted by agent.
    if (rows[index - 1]?.agent_id === id || rows[index + 1]?.agent_id === id) continue
    of.alone += 1
    if (of.named.length < MAX_NAMED) of.named.push(id)
  }
  return found
}

interface TrustKey {
  readonly agent_id: string
  readonly ca_digest: string
}

interface TrustRow extends TrustKey {
  readonly is_active: 0 | 1
}

const trustPage = ({ kysely }: Database, after?: TrustKey) => {
  const query = kysely
    .selectFrom('agent_trusted_cas as t')
    .innerJoin('internal_agents as a', 'a.agent_id', 't.agent_id')
    .select(['t.agent_id', 't.ca_digest', 'a.is_active'])
    .orderBy('t.agent_id')
    .orderBy('t.ca_digest')
  return after
    ? query.where(sql<boolean>`(t.agent_id, t.ca_digest) > (${after.agent_id}, ${after.ca_digest})`)
    : query
}

/** Asserts that no agent in service rests on a CA alone. */
export function noAgentTrustsOnly(db: Database, digest: string): RowAssertion {
  const question = db.kysely
    .selectNoFrom(sql.lit(1).as('holds'))
    .where((row) => row.not(row.exists(agentsTrustingOnly(db, digest))))
  return { sql: question.compile().sql, parameters: [digest, digest] }
}

const agentsTrustingOnly = ({ kysely }: Database, digest: string) =>
  kysely
    .selectFrom('agent_trusted_cas as t')
    .innerJoin('internal_agents as a', 'a.agent_id', 't.agent_id')
    .select('t.agent_id')
    .where('t.ca_digest', '=', digest)
    .where('a.is_active', '=', sql.lit(1 as const))
    .where((row) =>
      row.not(
        row.exists(
          row
            .selectFrom('agent_trusted_cas as o')
            .select('o.agent_id')
            .whereRef('o.agent_id', '=', 't.agent_id')
            .where('o.ca_digest', '<>', digest),
        ),
      ),
    )

/**
 * The agents, deactivated ones too, that one CA vouches for and another does not, by id. Pauses between
 * pages.
 */
export async function agentsTrustingOnlyFirst(
  { kysely }: Database,
  first: string,
  second: string,
  pause: PagePause = noPause,
): Promise<readonly string[]> {
  const page = (after: Pick<TrustKey, 'agent_id'> | undefined) => {
    const query = kysely
      .selectFrom('agent_trusted_cas as t')
      .leftJoin('agent_trusted_cas as o', (join) =>
        join.onRef('o.agent_id', '=', 't.agent_id').on('o.ca_digest', '=', second),
      )
      .select('t.agent_id')
      .where('t.ca_digest', '=', first)
      .where('o.agent_id', 'is', null)
      .orderBy('t.agent_id')
    return after ? query.where('t.agent_id', '>', after.agent_id) : query
  }
  const rows = await allPages<Pick<TrustKey, 'agent_id'>>(
    (after, limit) => page(after).limit(limit).execute(),
    pause,
  )
  return rows.map(({ agent_id: id }) => id)
}

/** Every agent whose SVIDs chain to attached CAs, deactivated ones too, and their digests. */
export async function trustedCasByAgent({
  kysely,
}: Database): Promise<ReadonlyMap<string, readonly string[]>> {
  const rows = await kysely
    .selectFrom('internal_agents as a')
    .leftJoin('agent_trusted_cas as t', 't.agent_id', 'a.agent_id')
    .select(['a.agent_id', 't.ca_digest'])
    .where('a.enrollment_method', '=', 'spiffe')
    .where('a.spiffe_id', 'is not', null)
    .orderBy('a.agent_id')
    .orderBy('t.ca_digest')
    .execute()
  const found = new Map<string, string[]>()
  for (const { agent_id: id, ca_digest: digest } of rows) {
    const digests = found.get(id) ?? []
    if (digest !== null) digests.push(digest)
    found.set(id, digests)
  }
  return found
}

interface NewTrust {
  readonly digest: string
  /** ms since the epoch. */
  readonly at: number
  readonly by?: string | undefined
}

/** Has a CA vouch for an agent. Changes no row if no SPIFFE CA of that digest is attached. */
export function trustCa(
  { kysely }: Database,
  agentId: string,
  { digest, at, by }: NewTrust,
): LedgerStatement {
  const query = kysely
    .insertInto('agent_trusted_cas')
    .columns(['agent_id', 'ca_digest', 'trusted_at', 'trusted_by'])
    .expression((from) =>
      from
        .selectFrom('attached_cas as c')
        .select([
          sql<string>`${agentId}`.as('agent_id'),
          'c.digest',
          sql<string>`${timestamp(at)}`.as('trusted_at'),
          sql<string | null>`${by ?? null}`.as('trusted_by'),
        ])
        .where('c.digest', '=', digest)
        .where('c.kind', '=', 'spiffe'),
    )
  return statementOf(query.compile(), 1)
}

/**
 * Has a CA vouch for all agents of another that it does not vouch for yet: `count` of them, else nothing
 * changes.
 */
export function copyCaTrust(
  { kysely }: Database,
  other: string,
  count: number,
  { digest, at, by }: NewTrust,
): LedgerStatement {
  const query = kysely
    .insertInto('agent_trusted_cas')
    .columns(['agent_id', 'ca_digest', 'trusted_at', 'trusted_by'])
    .expression((from) =>
      from
        .selectFrom('agent_trusted_cas as t')
        .innerJoin('attached_cas as c', (join) =>
          join.on('c.digest', '=', digest).on('c.kind', '=', 'spiffe'),
        )
        .leftJoin('agent_trusted_cas as o', (join) =>
          join.onRef('o.agent_id', '=', 't.agent_id').onRef('o.ca_digest', '=', 'c.digest'),
        )
        .select([
          't.agent_id',
          'c.digest',
          sql<string>`${timestamp(at)}`.as('trusted_at'),
          sql<string | null>`${by ?? null}`.as('trusted_by'),
        ])
        .where('t.ca_digest', '=', other)
        .where('o.agent_id', 'is', null),
    )
  return statementOf(query.compile(), count)
}

export function distrustCa({ kysely }: Database, agentId: string, digest: string): LedgerStatement {
  const query = kysely
    .deleteFrom('agent_trusted_cas')
    .where('agent_id', '=', agentId)
    .where('ca_digest', '=', digest)
  return statementOf(query.compile(), 1)
}

/** Has no CA vouch for an agent any more: its name belongs to somebody else from here on, or to nobody. */
export function distrustAll({ kysely }: Database, agentId: string): LedgerStatement {
  return statementOf(kysely.deleteFrom('agent_trusted_cas').where('agent_id', '=', agentId).compile())
}
