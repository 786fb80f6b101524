import { Transform, type TransformCallback } from 'node:stream'
import { ByteCollector, peakReservation } from '../../plugins/collect.ts'
import { unescapeJson } from '../../plugins/content/escaped-text.ts'
import type { ContentJudge, ContentJudgement, JudgedMessage } from '../../plugins/content/judge.ts'
import { StreamRules, type TextStretch, TextWatch } from '../../plugins/content/text-watch.ts'
import { type ContentFinding, mergeFindings } from '../../plugins/content/verdict.ts'
import type { MemoryReservation } from '../../plugins/plugin.ts'
import { deltaTexts, endsTexts } from './delta-texts.ts'

/** A longer event is judged by itself, on a thread: its texts are not joined to others. Bytes. */
const MAX_JOINED = 256 * 1024
/** Bytes of one event, and of all that is held. More is refused. */
const MAX_HELD = 32 * 1024 * 1024
/** The texts of one answer that are followed at once. */
const MAX_BLOCKS = 1_024

/** The error that a stream is broken off with when something in it may not pass. */
export class ContentCut extends Error {
  readonly judgement: ContentJudgement

  constructor(judgement: ContentJudgement) {
    super('a check of content has cut an answer', { cause: judgement.cause })
    this.judgement = judgement
  }
}

interface StreamJudging {
  readonly judge: ContentJudge
  readonly message: JudgedMessage
  /** False: it only watches, and holds nothing back. */
  readonly enforces: boolean
  readonly held: Pick<MemoryReservation, 'tryReserve'> | null
}

/** One text of an answer: as it is, and with the escapes of JSON resolved. */
class WatchedBlock {
  readonly asIs: TextWatch
  readonly resolved: TextWatch
  /** The end of the text that may be half an escape. */
  #half = ''

  constructor(rules: StreamRules) {
    this.asIs = new TextWatch(rules)
    this.resolved = new TextWatch(rules)
  }

  /** Tells, now and later, whether all that was appended by now may be told. */
  safety(): () => boolean {
    const { asIs, resolved } = this
    const [one, other, isHalf] = [asIs.length, resolved.length, this.#half !== '']
    return () =>
      asIs.safe >= one && resolved.safe >= other && (!isHalf || this.#half === '' || asIs.length > one)
  }

  append(text: string): (readonly [TextWatch, TextStretch | null])[] {
    const whole = this.#half + text
    this.#half = HALF_ESCAPE.exec(whole)?.[0] ?? ''
    const resolved = unescapeJson(whole.slice(0, whole.length - this.#half.length))
    return [
      [this.asIs, this.asIs.append(text)],
      [this.resolved, this.resolved.append(resolved)],
    ]
  }

  end(): (readonly [TextWatch, TextStretch | null])[] {
    this.#half = ''
    return [this.asIs, this.resolved].map((watch) => [watch, watch.end()] as const)
  }
}

const HALF_ESCAPE = /(?<!\\)(?:\\\\)*\\(?:u[0-9a-fA-F]{0,3})?$/

interface HeldEvent {
  readonly bytes: Buffer
  /** Tells whether each text in it may be told by now. */
  readonly safe: readonly (() => boolean)[]
}

/**
 * Passes a stream of server-sent events on byte for byte, each once nothing in it may be part of a secret. Is
 * destroyed with {@link ContentCut} if something may not pass. Joins the pieces of texts over events.
 */
export class JudgedStream extends Transform {
  readonly #judging: StreamJudging
  readonly #rules: StreamRules
  readonly #maxWhole: number | null
  readonly #fits: (bytes: number) => boolean
  readonly #event = new ByteCollector(MAX_HELD)
  readonly #blocks = new Map<string, WatchedBlock>()
  /** The joined texts, if a service judges all of them at the end. */
  readonly #whole = new Map<string, string>()
  readonly #findings: ContentFinding[] = []
  #wholeLength = 0
  /** The last bytes of the event that has begun. */
  #tail = ''
  #held: HeldEvent[] = []
  #heldBytes = 0
  #failed: ContentJudgement | null = null

  constructor(judging: StreamJudging) {
    super()
    const { judge, message } = judging
    this.#judging = judging
    this.#rules = new StreamRules(judge.streamRules(message.place))
    this.#maxWhole = judge.maxWhole(message.place)
    this.#fits = peakReservation(judging.held)
  }

  /** The account of all that has come by now. */
  get judgement(): ContentJudgement {
    const verdict = this.#failed?.verdict.verdict ?? 'pass'
    const findings = mergeFindings(this.#findings)
    return {
      ...(this.#failed ?? { reason: null }),
      verdict: { rules_digest: this.#judging.judge.digest, verdict, findings },
    }
  }

  override _transform(chunk: Buffer, _: BufferEncoding, done: TransformCallback): void {
    if (!this.#judging.enforces) this.push(chunk)
    this.#settle(this.#take(chunk), done)
  }

  override _flush(done: TransformCallback): void {
    this.#settle(this.#finish(), done)
  }

  #settle(work: Promise<void> | undefined, done: TransformCallback): void {
    if (work) void this.#settleLater(work, done)
    else done()
  }

  async #settleLater(work: Promise<void>, done: TransformCallback): Promise<void> {
    let failure: Error | null = null
    try {
      await work
    } catch (error) {
      if (this.#judging.enforces) failure = error instanceof Error ? error : new Error(String(error))
    }
    done(failure)
  }

  /** Takes bytes as they come, from a place on. A promise only if something has to be judged. */
  #take(chunk: Buffer, text = chunk.toString('latin1'), from = 0): Promise<void> | undefined {
    for (let at = from; ; ) {
      // Nobody waits for what only watches, and has failed.
      if (this.#failed) return undefined
      const end = this.#eventEnd(text, at)
      const part = chunk.subarray(at, end < 0 ? undefined : end)
      if (!this.#event.add(part) || !this.#fits(this.#heldBytes + this.#event.length))
        return Promise.reject(this.#cut(this.#unfit()))
      this.#tail = (this.#tail + text.slice(at, end < 0 ? undefined : end)).slice(-3)
      if (end < 0) return undefined
      const bytes = this.#event.bytes()
      this.#event.clear()
      this.#tail = ''
      at = end
      const judged = this.#judgeEvent(bytes)
      if (judged) return judged.then(() => this.#take(chunk, text, end))
    }
  }

  /** Returns the place after the blank line that ends an event; -1: it does not end. */
  #eventEnd(text: string, from: number): number {
    const before = this.#tail
    if (before !== '') {
      const at = endIn(before + text.slice(from, from + 3), 0)
      if (at > before.length) return from + at - before.length
    }
    return endIn(text, from)
  }

  #judgeEvent(bytes: Buffer): Promise<void> | undefined {
    const { judge, message } = this.#judging
    const stretches: (readonly [TextWatch, TextStretch])[] = []
    const safe: (() => boolean)[] = []
    const event = bytes.length <= MAX_JOINED ? eventData(bytes) : null
    for (const { block, text } of deltaTexts(event)) {
      const watched = this.#block(block)
      if (!watched) return Promise.reject(this.#cut(this.#unfit()))
      stretches.push(...due(watched.append(text)))
      safe.push(watched.safety())
      if (this.#maxWhole !== null && !this.#keep(block, text)) return Promise.reject(this.#cut(this.#unfit()))
    }
    if (bytes.length > MAX_JOINED || event === DONE || endsTexts(event))
      for (const one of this.#blocks.values()) stretches.push(...due(one.end()))
    this.#hold(bytes, safe)
    // Whatever else is in it, and texts that are told at once.
    const rules = this.#rules.longest > 0 ? judge.judgeByRules(bytes, message) : null
    if (stretches.length === 0 && !(rules instanceof Promise)) return this.#release()
    return this.#judged(stretches, rules)
  }

  #hold(bytes: Buffer, safe: readonly (() => boolean)[]): void {
    if (!this.#judging.enforces) return
    this.#held.push({ bytes, safe })
    this.#heldBytes += bytes.length
  }

  async #judged(
    stretches: readonly (readonly [TextWatch, TextStretch])[],
    rules: ContentJudgement | Promise<ContentJudgement> | null,
  ): Promise<void> {
    if (rules) this.#note(await rules)
    for (const [watch, { text }] of stretches) {
      this.#note(await this.#judging.judge.judgePiece(text))
      watch.passed()
    }
    this.#release()
  }

  /** Notes what was found. Throws if that may not pass. */
  #note(judged: ContentJudgement): void {
    this.#findings.push(...judged.verdict.findings.map(inAnswer))
    if (judged.verdict.verdict === 'pass') return
    this.#failed ??= judged
    if (this.#judging.enforces) throw this.#cut(judged)
  }

  #cut(judged: ContentJudgement): ContentCut {
    this.#failed ??= judged
    return new ContentCut(this.judgement)
  }

  #unfit(): ContentJudgement {
    const { digest: rules_digest } = this.#judging.judge
    const verdict = { rules_digest, verdict: 'failed', findings: [] } as const
    return { verdict, reason: null, cause: new Error('the answer is too long to be judged') }
  }

  #block(name: string): WatchedBlock | null {
    const known = this.#blocks.get(name)
    if (known) return known
    if (this.#blocks.size >= MAX_BLOCKS) return null
    const made = new WatchedBlock(this.#rules)
    this.#blocks.set(name, made)
    return made
  }

  #keep(block: string, text: string): boolean {
    this.#wholeLength += text.length
    this.#whole.set(block, (this.#whole.get(block) ?? '') + text)
    return this.#wholeLength <= (this.#maxWhole ?? 0)
  }

  /** Writes the events that may go on by now, in their order. */
  #release(): undefined {
    if (this.#maxWhole !== null) return
    let count = 0
    for (const { safe } of this.#held) {
      if (!safe.every((isSafe) => isSafe())) break
      count += 1
    }
    if (count > 0) this.#pass(this.#held.splice(0, count))
  }

  #pass(events: readonly HeldEvent[]): void {
    for (const { bytes } of events) {
      this.#heldBytes -= bytes.length
      this.push(bytes)
    }
  }

  async #finish(): Promise<void> {
    const { judge, message } = this.#judging
    const rest = this.#event.bytes()
    this.#event.clear()
    if (rest.length > 0) await this.#judgeEvent(rest)
    const stretches = [...this.#blocks.values()].flatMap((one) => due(one.end()))
    await this.#judged(stretches, null)
    if (this.#maxWhole !== null) {
      const texts = Buffer.from(JSON.stringify([...this.#whole.values()]))
      this.#note(await judge.judge(texts, { ...message, isJson: true }))
    }
    this.#pass(this.#held.splice(0))
  }
}

/** A stretch of a stream says nothing of the part that it is in. */
const inAnswer = (finding: ContentFinding): ContentFinding => ({ ...finding, where: 'stream' })

const due = (
  watched: readonly (readonly [TextWatch, TextStretch | null])[],
): (readonly [TextWatch, TextStretch])[] =>
  watched.flatMap(([watch, stretch]) => (stretch ? [[watch, stretch] as const] : []))

const EVENT_END = /(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))/g

/** Returns the place after the first blank line; -1: there is none. */
function endIn(text: string, from: number): number {
  EVENT_END.lastIndex = from
  return EVENT_END.exec(text) ? EVENT_END.lastIndex : -1
}

const DONE = Symbol('the last event of an answer')

/** Returns the JSON value of an event's data; null: it has none. */
function eventData(bytes: Buffer): unknown {
  const data = bytes
    .toString()
    .split(/\r\n|\n|\r/)
    .flatMap((line) => (line.startsWith('data:') ? [line.slice(5)] : []))
    .join('\n')
    .trim()
  if (data === '[DONE]') return DONE
  try {
    return JSON.parse(data)
  } catch {
    // No event of an API that is known: its bytes are judged all the same.
    return null
  }
}
