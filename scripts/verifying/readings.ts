/** Deeper than any body that the gateway lets in, and than any file of a pack or a receipt. */
const MAX_DEPTH = 64

/**
 * Finds out why two readers may take a JSON text for two different things: a member stands twice in one
 * object (escapes resolved), or it is nested deeper than 64, beyond which members were not checked. Returns
 * null if neither is so. The text must be one that `JSON.parse` takes.
 */
export function ambiguityOf(json: string): 'twice' | 'deep' | null {
  /** The names of each object that is open; null for an array. */
  const open: (Set<string> | null)[] = []
  let isTwice = false
  let mayBeName = false
  for (let at = 0; at < json.length; at += 1) {
    const character = json[at]
    if (character === '"') {
      const end = endOfText(json, at)
      const names = mayBeName ? open.at(-1) : null
      if (names) {
        const name = String(JSON.parse(json.slice(at, end + 1)))
        isTwice ||= names.has(name)
        names.add(name)
      }
      at = end
      mayBeName = false
    } else if (character === '{' || character === '[') {
      if (open.length === MAX_DEPTH) return 'deep'
      open.push(character === '{' ? new Set() : null)
      mayBeName = true
    } else if (character === '}' || character === ']') open.pop()
    else if (character === ',') mayBeName = true
  }
  return isTwice ? 'twice' : null
}

/** The place of the quotation mark that ends the text which begins at `start`. */
function endOfText(json: string, start: number): number {
  for (let at = start + 1; ; at += 1) {
    if (json[at] === '"') return at
    if (json[at] === '\\') at += 1
  }
}
