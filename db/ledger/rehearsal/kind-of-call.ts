/**
 * The parts of the leaf of an allowed decision that its verdict rests on, besides state and time. Start and
 * end of each, in turn; the fifth ends before the time. Null for any other leaf. Members of a leaf are in
 * order, and none of its texts has a bare quotation mark.
 */
export function partsOfCall(leaf: string): readonly number[] | null {
  const status = leaf.lastIndexOf('"status":"')
  if (!leaf.startsWith('allowed"', status + STATUS_LENGTH)) return null
  const detail = leaf.indexOf('"detail":{')
  const authority = leaf.indexOf('"authority":{', detail)
  if (detail < 0 || authority < 0) return null
  const end = endOfObject(leaf, authority + AUTHORITY_LENGTH)
  const path = leaf.indexOf('"path":"', end)
  const who = leaf.lastIndexOf('"dpop_jkt":')
  const previous = leaf.indexOf('"prev_hash":', who)
  const principal = leaf.indexOf('"principal_id":', previous)
  const at = leaf.indexOf('"recorded_at":', principal)
  if (path < 0 || who < end || previous < 0 || principal < 0 || at < 0) return null
  const pathEnd = leaf.indexOf('"', path + PATH_LENGTH) + 1
  return [0, detail, authority, end, path, pathEnd, who, previous, principal, at, status, leaf.length]
}

/** The texts of some parts of a leaf. */
export const leafPartTexts = (leaf: string, parts: readonly number[]): readonly string[] =>
  Array.from({ length: parts.length / 2 }, (_, part) => leaf.slice(parts[part * 2], parts[part * 2 + 1]))

const STATUS_LENGTH = '"status":"'.length
const AUTHORITY_LENGTH = '"authority":'.length
const PATH_LENGTH = '"path":"'.length

const [QUOTE, BACKSLASH, OPEN, CLOSE] = [0x22, 0x5c, 0x7b, 0x7d]

/** The place after the object that begins at a brace. */
function endOfObject(text: string, from: number): number {
  let [depth, inText] = [0, false]
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (inText) {
      if (code === BACKSLASH) at += 1
      else if (code === QUOTE) inText = false
    } else if (code === QUOTE) inText = true
    else if (code === OPEN) depth += 1
    else if (code === CLOSE) {
      depth -= 1
      if (depth === 0) return at + 1
    }
  }
  return text.length
}

/** The text of a member that stands once in a leaf, after `detail`; null if it is none. */
export function leafMemberText(leaf: string, member: 'recorded_at' | 'request_id'): string | null {
  const name = `"${member}":"`
  const at = leaf.lastIndexOf(name)
  return at < 0 ? null : leaf.slice(at + name.length, leaf.indexOf('"', at + name.length))
}
