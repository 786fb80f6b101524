import { FREQUENT_ACTIONS } from '../record/frequent.ts'

const NO_STATE = ['token', 'auth', 'service', 'admin', 'proposal', 'rehearsal']

/** True if an action, not of calls, can change what decisions rest on. */
export const mayChangeAuthority = (action: string): boolean =>
  !NO_STATE.includes(action.split('.', 1)[0] ?? '')

/** The actions that are in the index by action, as its condition has it. SQL. */
export const RARE_ACTION_SQL = `action not in (${FREQUENT_ACTIONS.map((action) => `'${action}'`).join(', ')})`

/** The rows that can be changes, by that index: the actions of calls have no full stop. SQL. */
export const CHANGING_ROWS_SQL = [
  RARE_ACTION_SQL,
  `action like '%.%'`,
  ...NO_STATE.map((of) => `action not like '${of}.%'`),
].join(' and ')

const OF_PRINCIPALS = ['agent', 'user', 'workload', 'operator']

/**
 * All changes but those of other principals. Compares texts of a leaf, by parameters for {@link subjectText}.
 * SQL.
 */
export const changingRowsSqlFor = (holds: readonly string[]): string =>
  `${CHANGING_ROWS_SQL} and (${OF_PRINCIPALS.map((of) => `action not like '${of}.%'`).join(' and ')} or ${[...holds, '0 = 1'].join(' or ')})`

export const subjectText = (principal: string): string => `"subject":${JSON.stringify(principal)}`

/** The changes of sets, as {@link subjectText} narrows them. SQL. */
export const SET_CHANGES_SQL = `${RARE_ACTION_SQL} and action in (${[
  ...OF_PRINCIPALS.flatMap((of) =>
    ['created', 'capabilities_set', 'capabilities_patched'].map((what) => `${of}.${what}`),
  ),
  'agent.enrolled_byoca',
  'agent.enrolled_spiffe',
]
  .map((action) => `'${action}'`)
  .join(', ')})`
