import { isObject, type Members } from '../../../db/json.ts'
import { Collector, most } from '../../../plugins/collect.ts'
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../../../plugins/json-body/bytes.ts'
import type { Held } from '../../../plugins/plugin.ts'
import type { TokenCount, UsageNames } from './dialect.ts'

/** What an answer cost, as its provider stated it. A member is absent where nothing was stated. */
export interface Usage {
  /** Whole numbers. `input` is everything that the model read, cached parts included, however the vendor counts. */
  readonly tokens?: Readonly<Partial<Record<TokenCount, number>>>
  /** The class of service that the call got. */
  readonly service_tier?: string
  /** The model that answered, as the provider names it. */
  readonly upstream_model?: string
}

export interface UsageTap {
  /** Takes a chunk after it was passed on. Never throws; keeps at most 2 MiB. */
  readonly observe: (chunk: Buffer) => void
  /** The counts stated so far. */
  readonly usage: () => Usage
}

/** Bytes. A longer JSON answer, or line of an event stream, is not read: its usage stays unknown. */
const MAX_KEPT = 2 * 1024 * 1024
/** Characters of the name of a model or of a service tier. */
const MAX_NAME = 256
/**
 * Bytes. A longer document is not parsed whole, which would hold up everybody for as long as 0.1 s
 * (docs/threats.md#a3): the members that count are cut out of it first.
 */
const PARSED_WHOLE = 65_536
/** The lines of one chunk that are read at least, where they state usage: each takes some 5 µs, and a chunk may hold 2,000. */
const MAX_STATEMENTS = 64
const NEWLINE = 0x0a
const SPACE = 0x20
const NEEDLE = Buffer.from('"usage"')
const NOTHING_YET = Buffer.from('"usage":null')
const DATA = Buffer.from('data:')

const DEAF: UsageTap = { observe: () => {}, usage: () => ({}) }

/**
 * Reads token usage from an answer as it passes, JSON or server-sent events, under a dialect's names.
 * `contentEncoding` other than identity: nothing is read; nor what would be more than `held` may hold. Does NOT
 * change, hold back or re-chunk anything.
 */
export function usageTap(
  names: UsageNames,
  contentType: string,
  contentEncoding?: string,
  held: Held | null = null,
): UsageTap {
  if (!isReadable(contentEncoding)) return DEAF
  if (contentType.toLowerCase().startsWith('text/event-stream')) return eventTap(names, held)
  return isJson(contentType) ? jsonTap(names, held) : DEAF
}

/** Reads the usage of an answer that is there whole, under the conditions of {@link usageTap}. */
export function usageOf(
  names: UsageNames,
  contentType: string,
  contentEncoding: string | undefined,
  answer: Buffer,
): Usage {
  if (!isReadable(contentEncoding) || !isJson(contentType)) return {}
  const found = new StatedUsage(names)
  found.read(answer)
  return found.usage()
}

const isReadable = (contentEncoding = 'identity'): boolean => contentEncoding.toLowerCase() === 'identity'
const isJson = (contentType: string): boolean => contentType.toLowerCase().startsWith('application/json')

function jsonTap(names: UsageNames, held: Held | null): UsageTap {
  const kept = new Collector(MAX_KEPT)
  const fits = most(held)
  return {
    observe: (chunk) => {
      if (fits(kept.length + chunk.length)) kept.add(chunk)
      else kept.close()
    },
    usage: () => {
      const found = new StatedUsage(names)
      found.read(kept.bytes())
      return found.usage()
    },
  }
}

/** Only whole lines that hold `"usage"` are ever parsed; a line may be cut anywhere between two chunks. */
function eventTap(names: UsageNames, held: Held | null): UsageTap {
  const found = new StatedUsage(names)
  const carry = new Collector(MAX_KEPT)
  const fits = most(held)
  return {
    observe: (chunk) => {
      const first = chunk.indexOf(NEWLINE)
      if (!fits(carry.length + chunk.length)) carry.close()
      if (first < 0) return void carry.add(chunk)
      carry.add(chunk.subarray(0, first))
      readLine(carry.bytes(), found)
      carry.clear()
      const last = chunk.lastIndexOf(NEWLINE)
      readLines(chunk.subarray(first + 1, last + 1), found)
      carry.add(chunk.subarray(last + 1))
    },
    usage: () => found.usage(),
  }
}

/**
 * Reads the first lines that state usage, and the last one: of what many of them state, a later one counts. `lines`
 * ends with a newline, or is empty.
 */
function readLines(lines: Buffer, found: StatedUsage): void {
  let hit = lines.indexOf(NEEDLE)
  for (let read = 1; hit >= 0; read += 1) {
    const end = lines.indexOf(NEWLINE, hit)
    readLine(lines.subarray(lines.lastIndexOf(NEWLINE, hit) + 1, end), found)
    const next = lines.indexOf(NEEDLE, end)
    hit = read === MAX_STATEMENTS && next >= 0 ? lines.lastIndexOf(NEEDLE) : next
  }
}

function readLine(line: Buffer, found: StatedUsage): void {
  if (!line.includes(NEEDLE) || line.includes(NOTHING_YET)) return
  if (line.subarray(0, DATA.length).equals(DATA)) found.read(line.subarray(DATA.length))
}

/** The statements of an answer's events so far; a later one replaces an earlier one of the same name. */
class StatedUsage {
  readonly #names: UsageNames
  readonly #stated = new Map<string, number>()
  #model: string | undefined
  #tier: string | undefined

  constructor(names: UsageNames) {
    this.#names = names
  }

  read(bytes: Buffer): void {
    const root = parse(bytes.length <= PARSED_WHOLE ? bytes : excerptOf(bytes, this.#names.holders))
    if (!isObject(root)) return
    this.#readHolder(root)
    for (const name of this.#names.holders) this.#readHolder(root[name])
  }

  #readHolder(holder: unknown): void {
    if (!isObject(holder) || !isObject(holder.usage)) return
    this.#collect(holder.usage)
    this.#model = nameOf(holder.model) ?? this.#model
    this.#tier = nameOf(holder.usage.service_tier) ?? nameOf(holder.service_tier) ?? this.#tier
  }

  usage(): Usage {
    const { tokens } = this.#names
    const counts: Partial<Record<TokenCount, number>> = {}
    // Its keys are these counts.
    for (const count of Object.keys(tokens) as TokenCount[]) {
      const stated = count === 'input' ? this.#input(tokens.input) : this.#first(tokens[count])
      if (stated !== undefined) counts[count] = stated
    }
    return {
      ...(Object.keys(counts).length > 0 && { tokens: counts }),
      ...(this.#tier !== undefined && { service_tier: this.#tier }),
      ...(this.#model !== undefined && { upstream_model: this.#model }),
    }
  }

  #collect(usage: Members): void {
    for (const names of Object.values(this.#names.tokens)) this.#keep(usage, names)
    this.#keep(usage, this.#names.besideInput)
  }

  #keep(usage: Members, names: readonly string[]): void {
    for (const name of names) {
      const value = valueAt(usage, name)
      if (Number.isSafeInteger(value) && Number(value) >= 0) this.#stated.set(name, Number(value))
    }
  }

  #input(names: readonly string[]): number | undefined {
    const input = this.#first(names)
    if (input === undefined) return undefined
    const beside = this.#names.besideInput.map((name) => this.#stated.get(name) ?? 0)
    const sum = beside.reduce((all, one) => all + one, input)
    return Number.isSafeInteger(sum) ? sum : undefined
  }

  #first(names: readonly string[]): number | undefined {
    for (const name of names) {
      const stated = this.#stated.get(name)
      if (stated !== undefined) return stated
    }
    return undefined
  }
}

function nameOf(value: unknown): string | undefined {
  if (typeof value !== 'string' || value === '' || value.length > MAX_NAME) return undefined
  return value.toWellFormed()
}

/** `name`: a member, or with a dot a member of a member. */
function valueAt(usage: Members, name: string): unknown {
  const dot = name.indexOf('.')
  if (dot < 0) return usage[name]
  const inner = usage[name.slice(0, dot)]
  return isObject(inner) ? inner[name.slice(dot + 1)] : undefined
}

function parse(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    // Not our document to judge: the caller gets it as it is, and its usage stays unknown.
    return undefined
  }
}

/** Writes an object anew with the outer members that count alone, and with those holders, written so too. */
function excerptOf(bytes: Buffer, holders: readonly string[]): Buffer {
  const kept = [...outerMembers(bytes, ['usage', 'model', 'service_tier', ...holders])].flatMap(
    ([name, value]) => {
      if (holders.includes(name)) return [`"${name}":${excerptOf(value, []).toString()}`]
      return value.length <= PARSED_WHOLE ? [`"${name}":${value.toString()}`] : []
    },
  )
  return Buffer.from(`{${kept.join()}}`)
}

/**
 * Finds the values of an object's outer members of these names: of one that stands twice the last. Looks at each byte
 * once and makes nothing of all the others. Does NOT check the grammar, nor read escapes in names.
 */
function outerMembers(bytes: Buffer, names: readonly string[]): ReadonlyMap<string, Buffer> {
  const wanted = names.map((name) => Buffer.from(name))
  const found = new Map<string, Buffer>()
  const keep = (nameStart: number, nameEnd: number, start: number, end: number): void => {
    const name = wanted.find((one) => isAt(bytes, nameStart, nameEnd, one))
    if (name) found.set(name.toString(), bytes.subarray(start, end))
  }
  const { length } = bytes
  let at = 0
  while (at < length && Number(bytes[at]) <= SPACE) at += 1
  if (bytes[at] !== OPEN_BRACE) return found
  let nameStart = 0
  let nameEnd = 0
  let valueStart = -1
  for (at += 1; at < length; at += 1) {
    const byte = bytes[at]
    if (byte === QUOTE) {
      const start = at + 1
      at = closingQuote(bytes, at)
      if (valueStart < 0) {
        nameStart = start
        nameEnd = at
      }
    } else if (byte === COLON) {
      if (valueStart < 0) valueStart = at + 1
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) at = closingBracket(bytes, at)
    else if (byte === COMMA || byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      if (valueStart >= 0) {
        keep(nameStart, nameEnd, valueStart, at)
        valueStart = -1
      }
      if (byte !== COMMA) break
    }
  }
  return found
}

/** The offset of the bracket that ends what the one at `open` begins, or the end of all. */
function closingBracket(bytes: Buffer, open: number): number {
  const { length } = bytes
  let depth = 1
  for (let at = open + 1; at < length; at += 1) {
    const step = STEPS[Number(bytes[at])]
    if (step === QUOTED) at = closingQuote(bytes, at)
    else {
      depth += Number(step)
      if (depth === 0) return at
    }
  }
  return length
}

const QUOTED = 2
/** What a byte does to the depth of brackets: an answer may be nothing but those. */
const STEPS = new Int8Array(256)
STEPS[OPEN_BRACE] = 1
STEPS[OPEN_BRACKET] = 1
STEPS[CLOSE_BRACE] = -1
STEPS[CLOSE_BRACKET] = -1
STEPS[QUOTE] = QUOTED

/** The offset of the quote that ends the string of the one at `quote`, or the end of all. */
function closingQuote(bytes: Buffer, quote: number): number {
  let at = quote + 1
  while (at < bytes.length && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1
  return at
}

// By hand: a text or a comparison made for each of a million names would take longer than reading them.
function isAt(bytes: Buffer, start: number, end: number, text: Buffer): boolean {
  if (end - start !== text.length) return false
  for (let i = 0; i < text.length; i += 1) if (bytes[start + i] !== text[i]) return false
  return true
}
