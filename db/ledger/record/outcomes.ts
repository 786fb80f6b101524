/** The statuses of a row that says how a call ended. */
export const OUTCOME_STATUSES: ReadonlySet<string> = new Set(['success', 'error', 'truncated', 'unknown'])
