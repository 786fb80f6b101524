import { isObject } from '../db/support/json.ts'

/** npm's verdict on the signatures of the installed packages. */
export type SignatureVerdict =
  | { readonly checked: true; readonly invalid: readonly string[]; readonly missing: readonly string[] }
  /** The registry publishes no keys, or could not be asked: npm's sentence about it. */
  | { readonly checked: false; readonly why: string }

/**
 * Reads the output of `npm audit signatures --json`. Anything that is no verdict counts as not checked: the
 * digests of the lock file hold all the same (`check-lock.ts`).
 */
export function signatureVerdict(text: string): SignatureVerdict {
  const found = parseObjectOrEmpty(text)
  if (Array.isArray(found.invalid) && Array.isArray(found.missing)) {
    return { checked: true, invalid: found.invalid.map(nameOf), missing: found.missing.map(nameOf) }
  }
  const why = isObject(found.error) && typeof found.error.summary === 'string' ? found.error.summary : ''
  return { checked: false, why: why || 'npm gave no verdict' }
}

function parseObjectOrEmpty(text: string) {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

const nameOf = (entry: unknown): string =>
  isObject(entry) ? `${String(entry.name)}@${String(entry.version)}` : String(entry)
