import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { ByteCollector, peakReservation } from '../../../plugins/collect.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import type { TokenCount, UsageNames } from './dialect.ts'
import { MemberPicker } from './member-picker.ts'

/** The cost of an answer, as its provider stated it. A member is absent if nothing was stated. */
export interface ProviderUsage {
  /**
   * Whole numbers. `input` is everything that the model read, cached parts included, however the vendor
   * counts.
   */
  readonly tokens?: Readonly<Partial<Record<TokenCount, number>>>
  /** The class of service that the call got. */
  readonly service_tier?: string
  /** The model that answered, as the provider names it. */
  readonly upstream_model?: string
}

export interface UsageTap {
  /** Takes a chunk after it was passed on. Never throws; keeps at most 256 KiB. */
  readonly observe: (chunk: Buffer) => void
  /** The counts stated so far. */
  readonly usage: () => ProviderUsage
}

/** Characters of the name of a model or of a service tier. */
const MAX_NAME = 256
/**
 * Bytes. A longer document is neither kept nor parsed whole, which would hold up everybody for as long as 0.1
 * s (docs/threats.md#a3): the members that count are picked out of it as it passes, for a caller can make it
 * as long as it likes.
 */
const PARSED_WHOLE = 65_536
/**
 * The lines of one chunk that are read at least, if they state usage: each takes some 5 µs, and a chunk may
 * hold 2,000.
 */
const MAX_STATEMENTS = 64
const NEWLINE = 0x0a
const NEEDLE = Buffer.from('"usage"')
const NOTHING_YET = Buffer.from('"usage":null')
const DATA = Buffer.from('data:')
const DATA_LINE = Buffer.from('\ndata:')

const NO_USAGE_TAP: UsageTap = { observe: () => {}, usage: () => ({}) }

/**
 * Reads token usage from an answer as it passes, JSON or server-sent events, under a dialect's names.
 * `contentEncoding` other than identity: nothing is read. What it keeps is counted on `held`. Does NOT
 * change, hold back or re-chunk anything.
 */
export function usageTap(
  names: UsageNames,
  contentType: string,
  contentEncoding?: string,
  held: MemoryReservation | null = null,
): UsageTap {
  if (!isReadable(contentEncoding)) return NO_USAGE_TAP
  if (contentType.toLowerCase().startsWith('text/event-stream')) return eventTap(names, held)
  return isJson(contentType) ? jsonTap(names, held) : NO_USAGE_TAP
}

/** Reads the usage of an answer that is there whole, under the conditions of {@link usageTap}. */
export function readUsage(
  names: UsageNames,
  contentType: string,
  contentEncoding: string | undefined,
  answer: Buffer,
): ProviderUsage {
  if (!isReadable(contentEncoding) || !isJson(contentType)) return {}
  const found = new StatedUsage(names)
  found.read(answer)
  return found.usage()
}

const isReadable = (contentEncoding = 'identity'): boolean => contentEncoding.toLowerCase() === 'identity'
const isJson = (contentType: string): boolean => contentType.toLowerCase().startsWith('application/json')

function jsonTap(names: UsageNames, held: MemoryReservation | null): UsageTap {
  const found = new StatedUsage(names)
  const document = new PassingDocument(names, held)
  return {
    observe: (chunk) => document.add(chunk),
    usage: () => {
      document.readInto(found)
      return found.usage()
    },
  }
}

/** Reads whole lines alone; a line may be cut anywhere between two chunks. */
function eventTap(names: UsageNames, held: MemoryReservation | null): UsageTap {
  const found = new StatedUsage(names)
  const line = new PassingDocument(names, held, DATA)
  let unnamed = MAX_UNNAMED
  return {
    observe: (chunk) => {
      if (unnamed > 0) unnamed = readModelOf(chunk, found) ? 0 : unnamed - 1
      const first = chunk.indexOf(NEWLINE)
      if (first < 0) return line.add(chunk)
      line.add(chunk.subarray(0, first))
      line.readInto(found)
      const last = chunk.lastIndexOf(NEWLINE)
      readLines(chunk.subarray(first + 1, last + 1), found)
      line.add(chunk.subarray(last + 1))
    },
    usage: () => found.usage(),
  }
}

/** The chunks of a stream that are looked into for the name of the model. */
const MAX_UNNAMED = 8

/** Reads the model of the first event that a chunk holds whole, whether it states usage or not. */
function readModelOf(chunk: Buffer, found: StatedUsage): boolean {
  const begun = chunk.subarray(0, DATA.length).equals(DATA) ? 0 : chunk.indexOf(DATA_LINE) + 1
  const end = chunk.indexOf(NEWLINE, begun)
  const isWhole = end > begun && chunk.subarray(begun, begun + DATA.length).equals(DATA)
  return isWhole && found.readModel(chunk.subarray(begun + DATA.length, end))
}

/** A document that comes in pieces: kept while it is short, and searched as it passes once it is not. */
class PassingDocument {
  readonly #names: UsageNames
  readonly #prefix: Buffer
  readonly #kept = new ByteCollector(PARSED_WHOLE)
  readonly #fits: (bytes: number) => boolean
  #picker: MemberPicker | null = null

  /** `prefix`: of a document that is read; absent: of each. */
  constructor(names: UsageNames, held: MemoryReservation | null, prefix: Buffer = Buffer.alloc(0)) {
    this.#names = names
    this.#prefix = prefix
    this.#fits = peakReservation(held)
  }

  add(piece: Buffer): void {
    const { length } = this.#kept
    if (!this.#picker && length + piece.length <= PARSED_WHOLE && this.#fits(length + piece.length)) {
      this.#kept.add(piece)
      return
    }
    if (!this.#picker) {
      const begun = length > 0 ? Buffer.concat([this.#kept.bytes(), piece]) : piece
      this.#kept.clear()
      const isRead = begun.subarray(0, this.#prefix.length).equals(this.#prefix)
      this.#picker = pickerOf(this.#names)
      // A text that is no document begins with none, so nothing of it is picked.
      this.#picker.add(isRead ? begun.subarray(this.#prefix.length) : this.#prefix)
    } else this.#picker.add(piece)
  }

  /** Ends the document, and adds the usage that it states. */
  readInto(found: StatedUsage): void {
    if (this.#picker) found.add(this.#picker.object())
    else if (this.#prefix.length > 0) readLine(this.#kept.bytes(), found)
    else found.read(this.#kept.bytes())
    this.#kept.clear()
    this.#picker = null
  }
}

const pickerOf = ({ holders }: UsageNames): MemberPicker =>
  new MemberPicker(['usage', 'model', 'service_tier'], holders)

/**
 * Reads the first lines that state usage, and the last one: if many of them state one count, a later one
 * wins. `lines` ends with a newline, or is empty.
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
  const named = line.indexOf(NEEDLE)
  if (named < 0 || isNothingYet(line, named)) return
  if (line.subarray(0, DATA.length).equals(DATA)) found.read(line.subarray(DATA.length))
}

/** Tells whether the sole `"usage"` of a line is one without a value, as most events of a stream have it. */
const isNothingYet = (line: Buffer, named: number): boolean =>
  line.indexOf(NOTHING_YET, named) === named && line.indexOf(NEEDLE, named + NEEDLE.length) < 0

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
    this.add(this.#parsed(bytes))
  }

  /**
   * Reads which model answers, which an event says before any states usage. Returns false if it says none.
   */
  readModel(bytes: Buffer): boolean {
    const root = this.#parsed(bytes)
    const holders = isObject(root) ? [root, ...this.#names.holders.map((name) => root[name])] : []
    for (const holder of holders) this.#model ??= isObject(holder) ? nameOf(holder.model) : undefined
    return this.#model !== undefined
  }

  #parsed(bytes: Buffer): unknown {
    if (bytes.length <= PARSED_WHOLE) return parse(bytes)
    const picker = pickerOf(this.#names)
    picker.add(bytes)
    return picker.object()
  }

  /** Takes a document, or the members picked from one. */
  add(root: unknown): void {
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

  usage(): ProviderUsage {
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

  #collect(usage: UnknownRecord): void {
    for (const names of Object.values(this.#names.tokens)) this.#keep(usage, names)
    this.#keep(usage, this.#names.besideInput)
  }

  #keep(usage: UnknownRecord, names: readonly string[]): void {
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
function valueAt(usage: UnknownRecord, name: string): unknown {
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
