/** Token counts as a provider stated them. Whole numbers; a member is absent where nothing was stated. */
export interface Usage {
  /** The whole prompt, cached tokens included, whatever the vendor's own way of counting. */
  readonly input_tokens?: number
  readonly output_tokens?: number
  /** Of the prompt: what the provider read from its cache. */
  readonly cached_tokens?: number
  /** The model that answered, as the provider names it. */
  readonly upstream_model?: string
}

export interface UsageTap {
  /** Takes a chunk after it was passed on. Never throws; keeps at most 4 MiB. */
  readonly observe: (chunk: Buffer) => void
  /** What was found so far. */
  readonly usage: () => Usage
}

/** Bytes. A JSON answer, or one line of an event stream, that is longer is not read: its usage stays unknown. */
const MAX_KEPT = 4 * 1024 * 1024
const MAX_MODEL = 256
const NEWLINE = 0x0a
const NEEDLE = Buffer.from('"usage"')
const NOTHING_YET = Buffer.from('"usage":null')
const DATA = Buffer.from('data:')

const DEAF: UsageTap = { observe: () => {}, usage: () => ({}) }

/**
 * Reads token usage from an answer as it passes, JSON or server-sent events, of the OpenAI and the Anthropic APIs.
 * `contentEncoding` other than identity: nothing is read. Does NOT change, hold back or re-chunk anything.
 */
export function usageTap(contentType: string, contentEncoding = 'identity'): UsageTap {
  if (contentEncoding.toLowerCase() !== 'identity') return DEAF
  const type = contentType.toLowerCase()
  if (type.startsWith('text/event-stream')) return eventTap()
  return type.startsWith('application/json') ? jsonTap() : DEAF
}

function jsonTap(): UsageTap {
  const kept = new Kept()
  return {
    observe: (chunk) => kept.add(chunk),
    usage: () => {
      const found = new Found()
      found.read(kept.bytes())
      return found.usage()
    },
  }
}

/** Only whole lines that hold `"usage"` are ever parsed; a line may be cut anywhere between two chunks. */
function eventTap(): UsageTap {
  const found = new Found()
  const carry = new Kept()
  return {
    observe: (chunk) => {
      const first = chunk.indexOf(NEWLINE)
      if (first < 0) return carry.add(chunk)
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

/** `lines` ends with a newline, or is empty. */
function readLines(lines: Buffer, found: Found): void {
  let hit = lines.indexOf(NEEDLE)
  while (hit >= 0) {
    const end = lines.indexOf(NEWLINE, hit)
    readLine(lines.subarray(lines.lastIndexOf(NEWLINE, hit) + 1, end), found)
    hit = lines.indexOf(NEEDLE, end)
  }
}

function readLine(line: Buffer, found: Found): void {
  if (!line.includes(NEEDLE) || line.includes(NOTHING_YET)) return
  if (line.subarray(0, DATA.length).equals(DATA)) found.read(line.subarray(DATA.length))
}

/** Chunks that are kept, without copying them, up to {@link MAX_KEPT}; past that, nothing until cleared. */
class Kept {
  #chunks: Buffer[] = []
  #length = 0

  add(chunk: Buffer): void {
    if (chunk.length === 0) return
    this.#length += chunk.length
    if (this.#length > MAX_KEPT) this.#chunks = []
    else this.#chunks.push(chunk)
  }

  bytes(): Buffer {
    const [first] = this.#chunks
    if (this.#length > MAX_KEPT || !first) return Buffer.alloc(0)
    return this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#length)
  }

  clear(): void {
    this.#chunks = []
    this.#length = 0
  }
}

type Members = Readonly<Record<string, unknown>>

/** What the events of an answer have said so far; a later statement replaces an earlier one. */
class Found {
  readonly #said = new Map<string, number>()
  #model: string | null = null

  read(bytes: Buffer): void {
    const root = parse(bytes)
    if (!root) return
    // A whole answer or a chunk; Anthropic's message_start; the events of the Responses API.
    for (const holder of [root, members(root.message), members(root.response)]) {
      const usage = members(holder?.usage)
      if (!holder || !usage) continue
      this.#collect(usage)
      this.#note(holder.model)
    }
  }

  usage(): Usage {
    const input = this.#input()
    const output = this.#first('completion_tokens', 'output_tokens')
    const cached = this.#first('cached_tokens', 'cache_read_input_tokens')
    return {
      ...(input !== undefined && { input_tokens: input }),
      ...(output !== undefined && { output_tokens: output }),
      ...(cached !== undefined && { cached_tokens: cached }),
      ...(this.#model !== null && { upstream_model: this.#model }),
    }
  }

  #collect(usage: Members): void {
    const details = members(usage.prompt_tokens_details) ?? members(usage.input_tokens_details)
    const all: Members = { ...usage, cached_tokens: details?.cached_tokens }
    for (const name of TOKEN_NAMES) {
      const value: unknown = all[name]
      if (Number.isSafeInteger(value) && Number(value) >= 0) this.#said.set(name, Number(value))
    }
  }

  #note(model: unknown): void {
    if (typeof model !== 'string' || model === '' || model.length > MAX_MODEL) return
    this.#model = model.toWellFormed()
  }

  /** Anthropic counts what it read from its cache, and what it wrote there, beside `input_tokens`; OpenAI within. */
  #input(): number | undefined {
    const input = this.#first('prompt_tokens', 'input_tokens')
    if (input === undefined) return undefined
    const read = this.#said.get('cache_read_input_tokens') ?? 0
    const sum = input + read + (this.#said.get('cache_creation_input_tokens') ?? 0)
    return Number.isSafeInteger(sum) ? sum : undefined
  }

  #first(...names: readonly TokenName[]): number | undefined {
    return names.map((name) => this.#said.get(name)).find((value) => value !== undefined)
  }
}

const TOKEN_NAMES = [
  'prompt_tokens',
  'completion_tokens',
  'input_tokens',
  'output_tokens',
  'cached_tokens',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
] as const
type TokenName = (typeof TOKEN_NAMES)[number]

function parse(bytes: Buffer): Members | undefined {
  if (bytes.length === 0) return undefined
  try {
    return members(JSON.parse(bytes.toString('utf8')))
  } catch {
    // Not our document to judge: the caller gets it as it is, and its usage stays unknown.
    return undefined
  }
}

function members(value: unknown): Members | undefined {
  // An object has members, whatever they are.
  return typeof value === 'object' && value !== null ? (value as Members) : undefined
}
