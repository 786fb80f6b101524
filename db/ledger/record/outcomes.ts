export const OUTCOME_STATUSES: ReadonlySet<string> = new Set(['success', 'error', 'truncated', 'unknown'])
