import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import { AUTHORITY_TOPIC } from '../support/notices.ts'
import type { BeatAnswer, PresenceParticipant } from './presence.ts'

/**
 * Numbers the states of authority: each changing statement raises one number in its transaction, and every
 * process hears of it once committed.
 */
export const authorityGeneration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of STATEMENTS) await sql.raw(statement).execute(db)
  },
}

export const operatorGeneration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    const columns = columnsWithout(PRINCIPAL, 'principal_ref', 'spiffe_bundle')
    for (const statement of triggerOf('local_operator_principals', columns))
      await sql.raw(statement).execute(db)
  },
}

/** The same of candidate sets. A change of the real set is told already. */
export const candidateGeneration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const table of ['internal_agents', 'local_user_principals', 'local_workload_principals'])
      for (const statement of triggerOf(table, ['candidate'], `${table}_candidate_changed`))
        await sql.raw(statement).execute(db)
  },
}

export const trustedCasGeneration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of triggerOf('agent_trusted_cas', [])) await sql.raw(statement).execute(db)
  },
}

/** The same of limits: each change of one raises the number of all. */
export const limitGeneration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of triggerOf('limit_set', [])) await sql.raw(statement).execute(db)
  },
}

/** The same of the grants of people: one that has ended holds for no call after it. */
export const peopleGeneration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of triggerOf('people_grants', [])) await sql.raw(statement).execute(db)
  },
}

const PRINCIPAL = [
  ...[
    'principal_ref',
    'name',
    'capabilities',
    'is_active',
    'enrollment_method',
    'spiffe_id',
    'spiffe_bundle',
  ],
  ...['dpop_jkt', 'previous_dpop_jkt', 'previous_dpop_jkt_until', 'authority_revision'],
]
const columnsWithout = (columns: readonly string[], ...gone: readonly string[]): readonly string[] =>
  columns.filter((column) => !gone.includes(column))

/** The tables that decisions are made by, and their columns if not all matter: a use changes no principal. */
const TABLES: Readonly<Record<string, readonly string[]>> = {
  internal_agents: columnsWithout(PRINCIPAL, 'principal_ref'),
  local_user_principals: columnsWithout(PRINCIPAL, 'spiffe_bundle'),
  local_workload_principals: columnsWithout(PRINCIPAL, 'principal_ref', 'spiffe_bundle'),
  certificate_pins: [],
  subject_keys: [],
  settings: [],
  api_keys: [],
  attached_cas: [],
  signing_keys: [],
  mcp_resources: [],
  mcp_tools: [],
  mcp_bindings: [],
}

function triggerOf(table: string, columns: readonly string[], name = `${table}_changed`): readonly string[] {
  const changed = columns.length > 0 ? ` of ${columns.join(', ')}` : ''
  return [
    `create trigger ${name} after insert or delete or truncate or update${changed} on ${table}
  for each statement execute function authority_changed()`,
    `alter table ${table} enable always trigger ${name}`,
  ]
}

const STATEMENTS = [
  'create table authority_generation (one boolean primary key default true check (one), generation bigint not null)',
  'insert into authority_generation (generation) values (1)',
  `create function authority_changed() returns trigger language plpgsql as $$
declare
  raised bigint;
begin
  update authority_generation set generation = generation + 1 returning generation into raised;
  perform pg_notify('sallyport', '${AUTHORITY_TOPIC} 1/1 ' || raised);
  return null;
end $$`,
  ...Object.entries(TABLES).flatMap(([table, columns]) => triggerOf(table, columns)),
]

/** The number of the state that decisions are made by, as far as this process knows. */
export class GenerationTracker implements PresenceParticipant {
  readonly #moved: (generation: number) => void
  #generation = 0

  /** `moved` is called with each number that is higher than the one before. */
  constructor(moved: (generation: number) => void) {
    this.#moved = moved
  }

  get latest(): number {
    return this.#generation
  }

  /** Takes a number that a notice or the database has said. One from before changes nothing. */
  take(generation: number): void {
    if (!(generation > this.#generation)) return
    this.#generation = generation
    this.#moved(generation)
  }

  asks(): readonly string[] {
    return [`(${SELECT_GENERATION}) as generation`]
  }

  heard({ generation = 0 }: BeatAnswer): void {
    if (generation < this.#generation) this.#generation = 0
    this.take(generation)
  }
}

export const SELECT_GENERATION = 'select generation from authority_generation'
