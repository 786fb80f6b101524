import type { TelemetrySignal } from './options.ts'
import type { SendOutcome, SendTelemetry } from './sender.ts'

/** Records of one signal that may wait. The newest is dropped if there is no place. */
export const MAX_WAITING_RECORDS = 4_096
/** Records that go in one message. */
export const MAX_BATCH = 512
/** The time after which fewer go. ms. */
export const BATCH_MS = 1_000
/** The first and the longest pause after a failure. ms. */
const MIN_PAUSE_MS = 1_000
export const MAX_PAUSE_MS = 60_000

/** The JSON text around the records of a message. */
export interface MessageEnvelope {
  readonly head: string
  readonly tail: string
}

export interface LaneReporting {
  /** Counts records that no collector has kept. */
  readonly dropped: (signal: TelemetrySignal, count: number) => void
  /** Called with each failure, and with null when a message is taken after one. */
  readonly failed: (signal: TelemetrySignal, problem: string | null) => void
}

/** The pauses after failures: each is twice as long as the one before. */
export class SendPause {
  #ms = 0
  #until = 0

  get leftMs(): number {
    return Math.max(0, this.#until - performance.now())
  }

  get hasFailed(): boolean {
    return this.#ms > 0
  }

  /** `wished`: the collector's own time. ms. A part of the pause is by chance, so that gateways do not come together. */
  begin(wished: number): void {
    this.#ms = Math.min(Math.max(MIN_PAUSE_MS, this.#ms * 2), MAX_PAUSE_MS)
    const ms = Math.min(Math.max(this.#ms * (0.75 + Math.random() / 4), wished), MAX_PAUSE_MS)
    this.#until = performance.now() + ms
  }

  end(): void {
    this.#ms = 0
    this.#until = 0
  }
}

/**
 * The queue of one signal to a collector: bounded, a message at a time. A message that may be taken later stays and
 * is sent again; one that is refused is dropped. Adding costs no more while the collector hangs.
 */
export class ExportLane {
  readonly #signal: TelemetrySignal
  readonly #envelope: MessageEnvelope
  readonly #send: SendTelemetry
  readonly #report: LaneReporting
  /** JSON texts, oldest first; the first may be under way. Bytes: texts that were put together are dear to keep. */
  readonly #waiting: Buffer[] = []
  readonly #pause = new SendPause()
  readonly #stopping = new AbortController()
  #timer: NodeJS.Timeout | null = null
  #isSending = false

  constructor(
    signal: TelemetrySignal,
    envelope: MessageEnvelope,
    send: SendTelemetry,
    report: LaneReporting,
  ) {
    this.#signal = signal
    this.#envelope = envelope
    this.#send = send
    this.#report = report
  }

  add(record: string): void {
    if (this.#stopping.signal.aborted || this.#waiting.length >= MAX_WAITING_RECORDS) {
      this.#report.dropped(this.#signal, 1)
      return
    }
    this.#waiting.push(Buffer.from(record))
    if (this.#waiting.length >= MAX_BATCH && !this.#isSending && this.#pause.leftMs === 0) void this.#flush()
    else this.#timer ??= this.#later(BATCH_MS)
  }

  /** Sends what waits, for so long at most, and drops the rest. */
  async close(ms: number): Promise<void> {
    const late = setTimeout(() => this.#stopping.abort(), ms)
    while (this.#waiting.length > 0 && !this.#stopping.signal.aborted && !this.#pause.hasFailed) {
      await (this.#isSending ? new Promise((resolve) => setTimeout(resolve, 10)) : this.#flush())
    }
    clearTimeout(late)
    this.#stopping.abort()
    if (this.#timer) clearTimeout(this.#timer)
    if (this.#waiting.length > 0) this.#report.dropped(this.#signal, this.#waiting.length)
  }

  #later(ms: number): NodeJS.Timeout {
    return setTimeout(() => {
      this.#timer = null
      void this.#flush()
    }, ms).unref()
  }

  /** Sends one message. The next one follows by itself. Never rejects. */
  async #flush(): Promise<void> {
    if (this.#isSending || this.#waiting.length === 0) return
    this.#isSending = true
    const batch = this.#waiting.slice(0, MAX_BATCH)
    const outcome = await this.#send(this.#signal, messageOf(batch, this.#envelope), this.#stopping.signal)
    this.#isSending = false
    if (outcome.kind !== 'later') this.#waiting.splice(0, batch.length)
    this.#note(outcome, batch.length)
    if (this.#waiting.length > 0 && !this.#stopping.signal.aborted)
      this.#timer ??= this.#later(this.#nextMs())
  }

  #nextMs(): number {
    return this.#pause.leftMs || (this.#waiting.length >= MAX_BATCH ? 0 : BATCH_MS)
  }

  #note(outcome: SendOutcome, count: number): void {
    if (outcome.kind === 'taken') {
      if (outcome.rejected > 0) this.#report.dropped(this.#signal, Math.min(outcome.rejected, count))
      if (this.#pause.hasFailed) this.#report.failed(this.#signal, null)
      this.#pause.end()
      return
    }
    if (outcome.kind === 'refused') this.#report.dropped(this.#signal, count)
    if (this.#stopping.signal.aborted) return
    this.#report.failed(this.#signal, outcome.problem)
    this.#pause.begin(outcome.kind === 'later' ? outcome.afterMs : 0)
  }
}

const COMMA = Buffer.from(',')

function messageOf(records: readonly Buffer[], { head, tail }: MessageEnvelope): Buffer {
  const parts = records.flatMap((record, index) => (index === 0 ? [record] : [COMMA, record]))
  return Buffer.concat([Buffer.from(head), ...parts, Buffer.from(tail)])
}
