// The form of text in a header that repeats a member of the body (MCP 2026-07-28, value encoding).

const PLAIN = /^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$/
const ENCODED_START = '=?base64?'
const ENCODED_END = '?='

/**
 * Writes a text as a header value: as it is if a header can carry it, else as `=?base64?…?=` of its UTF-8.
 */
export function encodeHeaderValue(value: string): string {
  if (PLAIN.test(value) && !isEncoded(value)) return value
  return `${ENCODED_START}${Buffer.from(value).toString('base64')}${ENCODED_END}`
}

/** Reads the text of a header value. Returns null for other characters, and if the Base64 is not of UTF-8. */
export function decodeHeaderValue(header: string): string | null {
  if (!PLAIN.test(header)) return null
  if (!isEncoded(header)) return header
  const bytes = Buffer.from(header.slice(ENCODED_START.length, -ENCODED_END.length), 'base64')
  // Node decodes leniently: only a text that encodes to the same again was Base64.
  if (`${ENCODED_START}${bytes.toString('base64')}${ENCODED_END}` !== header) return null
  const text = bytes.toString()
  return Buffer.from(text).equals(bytes) ? text : null
}

const isEncoded = (value: string): boolean => value.startsWith(ENCODED_START) && value.endsWith(ENCODED_END)
