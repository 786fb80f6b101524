import type { SecretRule } from './rules.ts'

/** The characters before a beginning that a rule looks at. */
const CONTEXT = 16
/**
 * The characters of a beginning that are waited with. Fewer end every other word, and no beginning is a part of what
 * is secret.
 */
const MIN_PART = 3
/** The end of a long piece in which beginnings are looked for: what is before is in one event, and judged with it. */
const MAX_SEARCHED = 8_448

/** A place at which a secret has begun, as far as its rules can say. */
interface OpenSecret {
  readonly at: number
  readonly rule: SecretRule
  readonly more: RegExp
  /** All before it may be part of the secret. */
  end: number
  hasEnded: boolean
  /** True: it is not waited for, though it may go on. */
  isFree: boolean
}

/** A stretch of a text that is to be judged. */
export interface TextStretch {
  readonly text: string
  /** The places of the text that wait for it. */
  readonly from: number
}

/** The beginnings of rules, as a growing text is searched for them. */
export class StreamRules {
  readonly begins: RegExp
  readonly longest: number
  readonly #byBegin = new Map<string, SecretRule>()
  readonly #more = new Map<string, RegExp>()
  readonly #parts = new Set<string>()

  constructor(rules: readonly SecretRule[]) {
    for (const rule of rules) {
      this.#more.set(rule.more, new RegExp(`${rule.more}*`, 'y'))
      for (const begin of rule.begins) {
        const known = this.#byBegin.get(begin)
        if (!known || known.most < rule.most) this.#byBegin.set(begin, rule)
        for (let length = MIN_PART; length < begin.length; length += 1)
          this.#parts.add(begin.slice(0, length))
      }
    }
    const begins = [...this.#byBegin.keys()]
    this.longest = Math.max(0, ...begins.map(({ length }) => length))
    const written = begins.map((text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&'))
    this.begins = new RegExp(written.join('|') || '(?!)', 'g')
  }

  ruleOf(begin: string): SecretRule | undefined {
    return this.#byBegin.get(begin)
  }

  moreOf({ more }: SecretRule): RegExp {
    // Made for each rule in the constructor.
    return this.#more.get(more) ?? /(?!)/y
  }

  /** Returns the length of the longest end of a text that begins a beginning. */
  partAtEnd(text: string): number {
    for (let length = Math.min(this.longest - 1, text.length); length >= MIN_PART; length -= 1)
      if (this.#parts.has(text.slice(-length))) return length
    return 0
  }
}

/**
 * Follows a text that grows, and says how far it may be told: up to a place at which a secret may have begun. Gives
 * out the stretches that are to be judged, once each has ended or is as long as its rule looks.
 */
export class TextWatch {
  readonly #rules: StreamRules
  #text = ''
  /** The place of the first character of `#text`. */
  #start = 0
  #open: OpenSecret[] = []
  #isEnded = false

  constructor(rules: StreamRules) {
    this.#rules = rules
  }

  get length(): number {
    return this.#start + this.#text.length
  }

  /** The place up to which the text may be told. */
  get safe(): number {
    const waiting = this.#open.filter(({ isFree }) => !isFree).map(({ at }) => at)
    const part = this.#isEnded ? 0 : this.#rules.partAtEnd(this.#text)
    return Math.min(this.length - part, ...waiting)
  }

  /** Takes the next piece. Returns the stretches that are to be judged: until `passed` they are not safe. */
  append(piece: string): TextStretch | null {
    this.#isEnded = false
    const from = Math.max(0, this.#text.length - this.#rules.longest + 1)
    this.#text += piece
    for (const one of this.#open) one.isFree = false
    this.#find(Math.max(from, this.#text.length - MAX_SEARCHED))
    for (const one of this.#open) this.#advance(one)
    const stretch = this.#due((one) => one.hasEnded)
    if (!stretch) this.#forget()
    return stretch
  }

  /** Takes note that nothing more is expected. What may go on even so is still followed. */
  end(): TextStretch | null {
    this.#isEnded = true
    return this.#due(() => true)
  }

  /** Takes note that the last stretch holds no secret. */
  passed(): void {
    this.#open = this.#open.filter(({ hasEnded }) => !hasEnded)
    if (this.#isEnded) for (const one of this.#open) one.isFree = true
    this.#forget()
  }

  #find(from: number): void {
    const { begins } = this.#rules
    begins.lastIndex = from
    for (let hit = begins.exec(this.#text); hit; hit = begins.exec(this.#text)) {
      const at = this.#start + hit.index
      begins.lastIndex = hit.index + 1
      const rule = this.#rules.ruleOf(hit[0])
      // One within another of its rule is judged with that.
      if (!rule || this.#open.some((one) => one.rule === rule && !one.hasEnded && at < this.#mostOf(one)))
        continue
      const more = this.#rules.moreOf(rule)
      const open = { at, rule, more, end: at + hit[0].length, hasEnded: false, isFree: false }
      this.#advance(open)
      this.#open.push(open)
    }
  }

  /** The place from which on another beginning of its rule is looked at by itself. */
  #mostOf({ at, end, rule }: OpenSecret): number {
    return end - at >= rule.most ? at + rule.most / 2 : Number.POSITIVE_INFINITY
  }

  #advance(one: OpenSecret): void {
    const { at, rule, more } = one
    if (one.hasEnded) return
    more.lastIndex = one.end - this.#start
    const taken = more.exec(this.#text)
    one.end += taken?.[0].length ?? 0
    const text = this.#text.slice(at - this.#start, one.end - this.#start)
    const isOther = rule.head !== undefined && text.length >= MAX_HEAD && !rule.head.test(text)
    one.hasEnded =
      isOther || one.end < this.length || text.length >= rule.most || rule.tail?.test(text) === true
  }

  /** Joins what is to be judged into one stretch; forgets what is too short to be a secret. */
  #due(isDue: (one: OpenSecret) => boolean): TextStretch | null {
    const long = this.#open.filter((one) => isDue(one) && one.end - one.at >= one.rule.least)
    this.#open = this.#open.filter((one) => !one.hasEnded || long.includes(one))
    if (long.length === 0) {
      if (this.#isEnded) for (const one of this.#open) one.isFree = true
      return null
    }
    const from = Math.min(...long.map(({ at }) => at))
    const to = Math.max(...long.map(({ end }) => end))
    const begun = Math.max(0, from - CONTEXT - this.#start)
    return { text: this.#text.slice(begun, to + 1 - this.#start), from }
  }

  /** Drops what no rule looks at any more. */
  #forget(): void {
    const needed = Math.min(this.length, ...this.#open.map(({ at }) => at)) - CONTEXT - this.#rules.longest
    if (needed <= this.#start) return
    this.#text = this.#text.slice(needed - this.#start)
    this.#start = needed
  }
}

/** The characters by which it is known if a beginning goes on as it must. */
const MAX_HEAD = 48
