/** Names of callers are few, and most stand in every message: so many are known by their bytes. */
const KNOWN: string[] = Array.from({ length: 512 }, () => '')
/** Bytes. A longer name is read anew each time. */
const MAX_KNOWN = 64

/** Reads a name that is written without an escape, in valid UTF-8. */
export function nameText(bytes: Buffer, start: number, end: number): string {
  const length = end - start
  if (length > MAX_KNOWN) return bytes.toString('utf8', start, end)
  let hash = length
  for (let at = start; at < end; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] ?? 0)) | 0
  const place = (hash ^ (hash >>> 9)) & (KNOWN.length - 1)
  const known = KNOWN[place] ?? ''
  if (known.length === length && isWrittenAt(known, bytes, start)) return known
  const name = bytes.toString('utf8', start, end)
  // In ASCII alone a letter is a byte.
  if (name.length === length) KNOWN[place] = name
  return name
}

function isWrittenAt(known: string, bytes: Buffer, start: number): boolean {
  for (let index = 0; index < known.length; index += 1) {
    if (known.charCodeAt(index) !== bytes[start + index]) return false
  }
  return true
}
