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
  const end = endOfValue(leaf, authority + AUTHORITY_LENGTH)
  const path = leaf.indexOf('"path":"', end)
  const who = leaf.lastIndexOf('"dpop_jkt":')
  const previous = leaf.indexOf('"prev_hash":', who)
  const principal = leaf.indexOf('"principal_id":', previous)
  const at = leaf.indexOf('"recorded_at":', principal)
  if (path < 0 || who < end || previous < 0 || principal < 0 || at < 0) return null
  const pathEnd = leaf.indexOf('"', path + PATH_LENGTH) + 1
  return [0, detail, authority, end, path, pathEnd, who, previous, principal, at, status, leaf.length]
}

export const leafPartTexts = (leaf: string, parts: readonly number[]): readonly string[] =>
  Array.from({ length: parts.length / 2 }, (_, part) => leaf.slice(parts[part * 2], parts[part * 2 + 1]))

const STATUS_LENGTH = '"status":"'.length
const AUTHORITY_LENGTH = '"authority":'.length
const PATH_LENGTH = '"path":"'.length

const [QUOTE, BACKSLASH, OPEN, CLOSE, OPEN_ARRAY, CLOSE_ARRAY] = [0x22, 0x5c, 0x7b, 0x7d, 0x5b, 0x5d]

/** The place after the object or array that begins at a brace or bracket. */
export function endOfValue(text: string, from: number): number {
  let [depth, inText] = [0, false]
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (inText) {
      if (code === BACKSLASH) at += 1
      else if (code === QUOTE) inText = false
    } else if (code === QUOTE) inText = true
    else if (code === OPEN || code === OPEN_ARRAY) depth += 1
    else if (code === CLOSE || code === CLOSE_ARRAY) {
      depth -= 1
      if (depth === 0) return at + 1
    }
  }
  return text.length
}

/** The most kinds remembered, and the most of their leaves to compare new ones with. */
const [MOST_KINDS, MOST_SAMPLES] = [10_000, 40_000]
/** Samples that look alike at a glance: a caller who chooses models could make them many. */
const MAX_SIMILAR_SAMPLES = 8

/** A kind of calls, and the result of judging one of them; null if that is not known, or not any more. */
export interface CallKind<Fate> {
  fate: Fate | null
}

interface LeafSample<Fate> {
  readonly length: number
  readonly parts: readonly number[]
  readonly texts: readonly string[]
  readonly kind: CallKind<Fate>
}

/**
 * Tells calls of one kind from others. Nearly all leaves are as one before, but for digests
 * and numbers of the same length, and comparing takes a fifth of the time of finding parts. Memory is
 * bounded.
 */
export class CallKindCache<Fate> {
  readonly #kinds = new Map<string, CallKind<Fate>>()
  readonly #samples = new Map<number, LeafSample<Fate>[]>()
  readonly #judged = new Map<string, Set<CallKind<Fate>>>()
  #sampled = 0

  /** The kind of a leaf; null of one that is of none. */
  of(leaf: string): CallKind<Fate> | null {
    const glance = glanceAt(leaf)
    const alike = this.#samples.get(glance)
    return alike?.find((sample) => isLike(leaf, sample))?.kind ?? this.#newLook(leaf, glance)
  }

  #newLook(leaf: string, glance: number): CallKind<Fate> | null {
    const parts = partsOfCall(leaf)
    if (parts === null) return null
    // Each change of a principal makes new kinds, and those before it are of no more use.
    if (this.#kinds.size === MOST_KINDS || this.#sampled === MOST_SAMPLES) this.#beginAnew()
    const kind = this.#kindOf(leafPartTexts(leaf, parts).join('\n'))
    const alike = this.#samples.get(glance) ?? []
    if (alike.length === MAX_SIMILAR_SAMPLES) return kind
    alike.push(sampleOf(leaf, parts, kind))
    this.#samples.set(glance, alike)
    this.#sampled += 1
    return kind
  }

  #kindOf(name: string): CallKind<Fate> {
    const known = this.#kinds.get(name)
    if (known) return known
    const made = { fate: null }
    this.#kinds.set(name, made)
    return made
  }

  #beginAnew(): void {
    for (const map of [this.#kinds, this.#samples, this.#judged]) map.clear()
    this.#sampled = 0
  }

  /** Remembers the fate of a kind of calls of a principal. */
  judged(principal: string, kind: CallKind<Fate>, fate: Fate): void {
    kind.fate = fate
    const kinds = this.#judged.get(principal)
    if (kinds) kinds.add(kind)
    else this.#judged.set(principal, new Set([kind]))
  }

  /** Forgets the fates of the calls of a principal; null: of all. */
  forget(principal: string | null): void {
    const gone = principal === null ? [...this.#judged.values()] : [this.#judged.get(principal) ?? []]
    for (const kinds of gone) for (const kind of kinds) kind.fate = null
    if (principal === null) this.#judged.clear()
    else this.#judged.delete(principal)
  }
}

const NO_NUMBER = /^[^0-9]*$/

function sampleOf<Fate>(leaf: string, parts: readonly number[], kind: CallKind<Fate>): LeafSample<Fate> {
  const joined: number[] = []
  for (const at of parts) {
    const isBegin = joined.length % 2 === 0
    if (isBegin && joined.length > 0 && NO_NUMBER.test(leaf.slice(joined.at(-1), at))) joined.pop()
    else joined.push(at)
  }
  return { length: leaf.length, parts: joined, texts: leafPartTexts(leaf, joined).map(flat), kind }
}

// A slice holds on to the whole leaf, and is compared more slowly.
const flat = (text: string): string => Buffer.from(text).toString()

function isLike<Fate>(leaf: string, { length, parts, texts }: LeafSample<Fate>): boolean {
  if (leaf.length !== length) return false
  for (let part = 0; part < texts.length; part += 1)
    if (leaf.slice(parts[part * 2], parts[part * 2 + 1]) !== texts[part]) return false
  return true
}

/** Offsets at which leaves differ by kind: the certificate's digest from the front, the tool from the end. */
const [FROM_FRONT, FROM_END] = [
  [60, 66, 72, 78, 84, 90, 96, 102, 109, 110],
  [26, 29, 32, 35, 38, 41, 44, 47, 50],
]

/** A number that leaves of one kind and length share, and others hardly. */
function glanceAt(leaf: string): number {
  let sum = leaf.length
  for (const at of FROM_FRONT) sum = (Math.imul(sum, 31) + leaf.charCodeAt(at)) | 0
  for (const at of FROM_END) sum = (Math.imul(sum, 31) + leaf.charCodeAt(leaf.length - at)) | 0
  return sum
}
