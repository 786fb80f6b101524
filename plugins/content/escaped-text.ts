/** The levels of escapes that are resolved: JSON as a text in JSON, and so on. */
const MAX_LEVELS = 4

const ESCAPE = /\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))/g
const CHARACTERS: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }

/** Resolves one level of JSON's escapes (RFC 8259 §7). Others stay. */
export const unescapeJson = (text: string): string =>
  text.replace(ESCAPE, (_, digits: string | undefined, short: string | undefined) =>
    digits === undefined
      ? (CHARACTERS[short ?? ''] ?? short ?? '')
      : String.fromCharCode(Number.parseInt(digits, 16)),
  )

/** Yields a text as it is, and again with each of up to four levels of JSON's escapes resolved. */
export function* textLevels(text: string): Generator<string> {
  let reading = text
  for (let level = 0; level <= MAX_LEVELS; level += 1) {
    yield reading
    if (!reading.includes('\\')) return
    const next = unescapeJson(reading)
    if (next === reading) return
    reading = next
  }
}
