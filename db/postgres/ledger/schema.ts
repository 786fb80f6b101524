import type { Client, Pool } from 'pg'
import {
  CHECKPOINTS_OF_COLUMNS,
  CHECKPOINTS_TRIGGER,
  GUARD_FUNCTIONS,
  GUARD_TRIGGERS,
  NEXT_OF_EITHER_FORM,
} from './guards.ts'
import { ARCHIVED_ROWS_GUARD, SEGMENT_GUARDS } from './segments.ts'

/**
 * Names the audit tables' guards that are missing, changed, switched off or too many; null if all is well
 * (docs/threats.md#t12).
 */
export async function postgresSchemaProblem(client: Client | Pool): Promise<string | null> {
  const { rows } = await client.query<GuardDefinition>(FOUND)
  // Set for all triggers, once no gateway of the version before ran (columns.ts), or for none.
  const paths = rows.some(({ path }) => path === 'own')
  const found = new Map(
    rows.map(({ name, enabled, body, path }) => [
      name,
      `${enabled} ${body}${paths && path === 'none' ? ' search_path' : ''}`,
    ]),
  )
  const expected = new Map(
    Object.entries(GUARD_TRIGGERS).map(([name, function_]) => [
      name,
      `A ${GUARD_FUNCTIONS[function_] ?? ''}`,
    ]),
  ).set(PLACE, 'a given once')
  // Not in a database of the version before, which is verified too.
  if (found.delete(SEGMENTS))
    for (const [name, [, , body]] of Object.entries(SEGMENT_GUARDS)) expected.set(name, `A ${body}`)
  // Not adopted while a gateway of the version before ran (segments.ts).
  if (found.get('audit_rows_delete') === REMOVAL_GUARD) expected.set('audit_rows_delete', REMOVAL_GUARD)
  // Rows are stored in columns (columns.ts), by both of these or by none.
  if (found.has(CHECKPOINTS_TRIGGER) || found.get('audit_rows_insert') === NEXT_GUARD)
    expected.set('audit_rows_insert', NEXT_GUARD).set(CHECKPOINTS_TRIGGER, `O ${CHECKPOINTS_OF_COLUMNS}`)
  const names = [...new Set([...expected.keys(), ...found.keys()])].sort()
  const odd = names.filter((name) => expected.get(name) !== found.get(name))
  if (odd.length === 0) return null
  return `the guards of the audit tables are not as this version makes them: ${odd.map((name) => verdict(name, expected, found)).join(', ')}`
}

// With what it is planned by.
const NEXT_GUARD = `A ${NEXT_OF_EITHER_FORM} plan_cache_mode=force_generic_plan enable_seqscan=off`

const REMOVAL_GUARD = `A ${ARCHIVED_ROWS_GUARD}`

const PLACE = 'column place'
const SEGMENTS = 'table audit_segments'

type GuardDefinitions = ReadonlyMap<string, string>

function verdict(name: string, expected: GuardDefinitions, found: GuardDefinitions): string {
  if (!found.has(name)) return `${name} is missing`
  return expected.has(name) ? `${name} was changed or switched off` : `${name} was added`
}

interface GuardDefinition {
  readonly name: string
  /** `A`: always, also while replaying a replica. For a column, `a`: always given by the database. */
  readonly enabled: string
  readonly body: string
  /** `own`: it sees the tables of all alone. Null: no trigger. */
  readonly path: 'own' | 'none' | null
}

const FOUND = `select t.tgname as name, t.tgenabled as enabled,
  p.prosrc || coalesce(' ' || nullif(array_to_string(array_remove(p.proconfig, path), ' '), ''), '') as body,
  case when path = any(p.proconfig) then 'own' else 'none' end as path
from pg_trigger t join pg_proc p on p.oid = t.tgfoid join pg_class c on c.oid = t.tgrelid,
  concat('search_path=', c.relnamespace::regnamespace, ', pg_temp') path
where not t.tgisinternal and (t.tgrelid in ('audit_rows'::regclass, to_regclass('audit_segments'))
  or t.tgrelid = to_regclass('audit_checkpoints') and t.tgname = '${CHECKPOINTS_TRIGGER}')
union all
select '${SEGMENTS}', '', '', null where to_regclass('audit_segments') is not null
union all
select r.rulename, r.ev_enabled, pg_get_ruledef(r.oid), null from pg_rewrite r where r.ev_class = 'audit_rows'::regclass
union all
select '${PLACE}', a.attidentity, case when a.attnotnull and s.seqcache = 1 and s.seqincrement = 1 and not s.seqcycle
  and exists (select from pg_index i where i.indrelid = a.attrelid and i.indisunique and i.indisvalid
    and i.indnkeyatts = 1 and i.indkey[0] = a.attnum and i.indpred is null) then 'given once' else 'given otherwise' end, null
from pg_attribute a join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid
  and d.refobjsubid = a.attnum and d.classid = 'pg_class'::regclass and d.deptype = 'i'
join pg_sequence s on s.seqrelid = d.objid
where a.attrelid = 'audit_rows'::regclass and a.attname = 'place'`
