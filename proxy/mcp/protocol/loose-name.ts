/** The dot that the lower case of U+0130 leaves after its i. */
const DOT_ABOVE = /\u0307/g

/** The names that most messages have: nothing in them is folded. */
const PLAIN = /^[a-z0-9./]*$/

/**
 * Returns a member's name without case, as Unicode folds it (Go's `encoding/json`: `Name`, `argumentſ` with
 * U+017F, `toKen` with U+212A; CVE-2026-27896), and with nothing after a NUL, which ends a text of C.
 */
export function foldedCase(name: string): string {
  if (PLAIN.test(name)) return name
  const end = name.indexOf('\0')
  const text = end < 0 ? name : name.slice(0, end)
  // Some letters have a partner in one direction only: ẞ and ß, ſ and S, the Kelvin sign and k.
  return text.toLowerCase().toUpperCase().toLowerCase().replace(DOT_ABOVE, '')
}

const SEPARATORS = /[-_]/g

/** Returns a name as the loosest reader takes it: without `_` and `-`, as protobuf's JSON does. */
export const looseName = (name: string): string => foldedCase(name).replace(SEPARATORS, '')

/** Characters of a member's name in objects that MCP defines. Folding a longer one costs too much. */
export const MAX_FOLDED_NAME = 512
/** Members of one object whose names are folded. MCP knows some forty. */
export const MAX_FOLDED_NAMES = 1_000

/** The names that an object has for its readers: each is one of them letter for letter, or none. */
export class ExactNames {
  readonly exact: ReadonlySet<string>
  readonly #fold: (name: string) => string
  readonly #folded: ReadonlyMap<string, string>

  constructor(names: Iterable<string>, fold: (name: string) => string) {
    this.exact = new Set(names)
    this.#fold = fold
    this.#folded = new Map([...this.exact].map((name) => [fold(name), name]))
  }

  /** Returns the name that some reader takes `name` for, though it is another one; null if there is none. */
  mistakenFor(name: string): string | null {
    return this.exact.has(name) ? null : (this.#folded.get(this.#fold(name)) ?? null)
  }

  /** Tells whether some reader takes one of these names for one of the object's. */
  areMistaken(names: Iterable<string>): boolean {
    let count = 0
    for (const name of names) {
      count += 1
      if (count > MAX_FOLDED_NAMES || name.length > MAX_FOLDED_NAME) return true
      if (this.mistakenFor(name) !== null) return true
    }
    return false
  }
}
