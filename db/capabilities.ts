/** Spec §8. */
const TOKEN = /^[a-z_][a-z0-9_.]{0,63}$/
const MAX_TOKENS = 64

export interface FieldError {
  readonly field: string
  readonly message: string
}

export type ParsedCapabilities =
  | { readonly ok: true; readonly capabilities: readonly string[] }
  | { readonly ok: false; readonly errors: readonly FieldError[] }

/** Returns whether this is a capability token (spec §2.2). Does NOT say whether anything requires it. */
export function isCapability(value: unknown): value is string {
  return typeof value === 'string' && TOKEN.test(value)
}

/**
 * Reads a capability set as callers send it (spec §8), or names every entry that breaks the rules. Order is
 * kept. A token sent twice is held once (§3). The limit counts entries as sent.
 */
export function parseCapabilities(value: unknown): ParsedCapabilities {
  if (!Array.isArray(value)) return broken('capabilities', 'must be an array of strings')
  // Before any entry is looked at: a list of a million costs as much as a list of one.
  if (value.length > MAX_TOKENS) {
    return broken('capabilities', `must have at most ${MAX_TOKENS} entries, got ${value.length}`)
  }
  const errors: FieldError[] = []
  // A Set, not an object: `__proto__` and `constructor` are tokens of the valid shape.
  const held = new Set<string>()
  for (const [index, entry] of value.entries()) {
    if (isCapability(entry)) held.add(entry)
    else errors.push({ field: `capabilities[${index}]`, message: tokenRule(entry) })
  }
  return errors.length > 0 ? { ok: false, errors } : { ok: true, capabilities: [...held] }
}

// The entry itself is not repeated: it may be long, or not fit for a log.
function tokenRule(entry: unknown): string {
  return typeof entry === 'string' ? `must match ${TOKEN.source}` : 'must be a string'
}

function broken(field: string, message: string): ParsedCapabilities {
  return { ok: false, errors: [{ field, message }] }
}
