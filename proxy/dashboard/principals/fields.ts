const LABELS: Readonly<Record<string, string>> = {
  agent_name: 'Name',
  user_name: 'Name',
  workload_name: 'Name',
  operator_name: 'Name',
  display_name: 'Shown as',
  capabilities: 'The set',
}

/** Calls a field of a refusal by the name that its page has for it; of a set, the token that is wrong. */
export const fieldLabels =
  (typed: readonly string[]) =>
  (field: string): string => {
    const at = /^capabilities\[(\d+)\]$/.exec(field)?.[1]
    return at === undefined ? (LABELS[field] ?? field) : (typed[Number(at)] ?? field)
  }
