import type { Agent } from 'undici'
import type { LedgerFollower } from '../../db/ledger/cursors/follow.ts'
import { type LedgerLine, rowOfLine } from '../../db/ledger/cursors/line.ts'
import { egressAgent } from '../egress/agent.ts'
import { messageId, notifiedMessage, type PageBase, type PostedMessage, postedMessage } from './message.ts'
import { EVENT_ACTIONS, type NotifyOptions, type NotifyTarget, targetReader } from './options.ts'

/** The time that a message with its answer may take. ms. */
const MESSAGE_MS = 5_000
/** The most of an answer that is read. Bytes. */
const MAX_ANSWER_BYTES = 16_384

interface NotifyDependencies {
  /** The base URL of the pages of administration. */
  readonly pages: PageBase
  /** ms since the epoch. */
  readonly clock: () => number
}

/**
 * Keeps the targets of the configuration in force open: each is a reader of the ledger. A reload that changes none
 * leaves them open.
 */
export class NotifyTargets {
  readonly #means: NotifyDependencies
  #options = ''
  #opened: readonly TargetReader[] = []

  constructor(means: NotifyDependencies) {
    this.#means = means
  }

  /** The readers of a file; null: there is none. */
  readers(options: NotifyOptions | null): readonly LedgerFollower[] {
    const text = JSON.stringify(options)
    if (text === this.#options) return this.#opened
    void this.close()
    this.#options = text
    this.#opened = (options?.targets ?? []).map((target) => new TargetReader(target, this.#means))
    return this.#opened
  }

  async close(): Promise<void> {
    const opened = this.#opened
    this.#opened = []
    this.#options = ''
    await Promise.all(opened.map((target) => target.close()))
  }
}

/**
 * Tells one target of the rows that it wants, in their order. A message that is not taken comes again, until nobody
 * needs it any more: then it is left out. Each is sent once at least, always by the same id.
 */
class TargetReader implements LedgerFollower {
  readonly name: string
  readonly from = 'now'
  readonly names = false
  readonly #target: NotifyTarget
  readonly #means: NotifyDependencies
  readonly #agent: Agent
  /** The last row of each stream that was told, if a later one of its page was not. */
  readonly #told = new Map<string, number>()

  constructor(target: NotifyTarget, means: NotifyDependencies) {
    this.name = targetReader(target)
    this.#target = target
    this.#means = means
    // The operator has named it to the letter; metadata services are never reached.
    this.#agent = egressAgent({ allowPrivate: true, connectMs: MESSAGE_MS, answerMs: MESSAGE_MS })
  }

  take = async (page: readonly LedgerLine[], signal: AbortSignal): Promise<void> => {
    for (const line of page) {
      if (line.seq <= (this.#told.get(line.stream) ?? 0)) continue
      await this.#tell(line, signal)
      this.#told.set(line.stream, line.seq)
    }
    for (const { stream } of page) this.#told.delete(stream)
  }

  close(): Promise<void> {
    return this.#agent.destroy()
  }

  async #tell(line: LedgerLine, signal: AbortSignal): Promise<void> {
    const { events } = this.#target
    // Most rows are none of these: they are not parsed.
    if (!events.some((event) => line.line.includes(`"action":"${EVENT_ACTIONS[event]}"`))) return
    const message = notifiedMessage(rowOfLine(line), events, this.#means.pages())
    const now = this.#means.clock()
    if (message === null || now >= message.until) return
    const id = messageId(this.name, line.stream, line.seq)
    await this.#post(postedMessage(this.#target, message, id, now), signal)
  }

  async #post({ headers, body }: PostedMessage, signal: AbortSignal): Promise<void> {
    const url = new URL(this.#target.url)
    const late = AbortSignal.timeout(MESSAGE_MS)
    try {
      const answer = await this.#agent.request({
        origin: url.origin,
        path: url.pathname + url.search,
        method: 'POST',
        headers,
        body,
        signal: AbortSignal.any([signal, late]),
      })
      const { statusCode: status } = answer
      await answer.body.dump({ limit: MAX_ANSWER_BYTES })
      if (status < 200 || status > 299) throw new Error(`${url.host} answered ${status}`)
    } catch (error) {
      if (signal.aborted || !late.aborted) throw error
      throw new Error(`${url.host} has not answered within ${MESSAGE_MS / 1_000} s`, { cause: error })
    }
  }
}
