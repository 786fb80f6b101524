import type { Duplex } from 'node:stream'
import { serialize } from 'node:v8'
import type { Database } from '../../database.ts'
import { MAIN_STREAM } from '../../ledger/record/leaf.ts'
import type { OpenDecision, Writer } from '../../ledger/record/writer.ts'
import { NOTICE_MAX_BYTES, type Notices } from '../../support/notices.ts'
import { type PackedResults, packBatch, unpackResults } from '../ledger/packing.ts'
import { type Frame, readFrames, sendFrame, sendValue, valueIn } from './frames.ts'
import { DOWN, type Notice, UP, type Welcome } from './messages.ts'

/** A worker's way to the process above it, for its half of their SQLite database. */
export interface Link {
  /** Makes of a database that this process has opened one whose ledger and locks are above. */
  readonly share: (database: Database) => Database
}

/** Opens the link over a channel. Everything that is asked fails once the channel has ended. */
export const openLink = (channel: Duplex): Link => new ChannelLink(channel)

interface Question {
  readonly resolve: (frame: Frame) => void
  readonly reject: (error: Error) => void
}

const GONE = 'the process above this worker is gone'

class ChannelLink implements Link, Notices {
  readonly #channel: Duplex
  readonly #questions = new Map<number, Question>()
  readonly #opened = Promise.withResolvers<Welcome>()
  readonly #lost = Promise.withResolvers<Error>()
  readonly #heard = new Map<string, ((text: string) => void)[]>()
  #lastId = 0
  #fault: Error | null = null
  #leads = false

  constructor(channel: Duplex) {
    this.#channel = channel
    this.#opened.promise.catch(() => {})
    readFrames(channel, (frame) => this.#hear(frame))
    channel.on('error', () => channel.destroy())
    channel.once('close', () => this.#lose(new Error(GONE)))
  }

  share(database: Database): Database {
    return {
      ...database,
      openWriter: () => this.#writer(),
      alone: (work) => this.#alone(work),
      notices: this,
      leads: () => this.#leads,
    }
  }

  get listening(): boolean {
    return this.#fault === null
  }

  tell(topic: string, text: string): void {
    const bytes = Buffer.byteLength(text)
    if (bytes > NOTICE_MAX_BYTES)
      throw new RangeError(`a notice is at most ${NOTICE_MAX_BYTES} bytes long, and not ${bytes}`)
    sendValue(this.#channel, UP.tell, 0, { topic, text } satisfies Notice)
  }

  hear(topic: string, told: (text: string) => void): void {
    this.#heard.set(topic, [...(this.#heard.get(topic) ?? []), told])
  }

  async #writer(): Promise<Writer> {
    const { head } = await this.#opened.promise
    return {
      stream: MAIN_STREAM,
      head,
      lost: this.#lost.promise,
      write: async (batch) => {
        const answer = await this.#ask(UP.write, serialize(packBatch(batch)))
        return unpackResults(valueIn<PackedResults>(answer), batch)
      },
      unfinished: async () => {
        const decisions = valueIn<readonly OpenDecision[]>(await this.#ask(UP.unfinished))
        return decisions.length === 0 ? [] : [{ statements: [], decisions }]
      },
      // What was asked is answered: the ledger's queue has waited for it.
      close: () => Promise.resolve(),
    }
  }

  async #alone<Made>(work: () => Promise<Made>): Promise<Made> {
    await this.#ask(UP.lock)
    try {
      return await work()
    } finally {
      sendValue(this.#channel, UP.unlock, 0, null)
    }
  }

  #ask(kind: number, body: Uint8Array = NOTHING): Promise<Frame> {
    if (this.#fault) return Promise.reject(this.#fault)
    this.#lastId = (this.#lastId + 1) % 2 ** 32
    const { promise, resolve, reject } = Promise.withResolvers<Frame>()
    this.#questions.set(this.#lastId, { resolve, reject })
    sendFrame(this.#channel, kind, this.#lastId, body)
    return promise
  }

  #hear(frame: Frame): void {
    switch (frame.kind) {
      case DOWN.opened:
        this.#opened.resolve(valueIn(frame))
        break
      case DOWN.leads:
        this.#leads = valueIn(frame)
        break
      case DOWN.told:
        this.#told(valueIn(frame))
        break
      case DOWN.lost:
        this.#lose(new Error(valueIn<string>(frame)))
        break
      default:
        this.#answered(frame)
    }
  }

  #answered(frame: Frame): void {
    const question = this.#questions.get(frame.id)
    this.#questions.delete(frame.id)
    if (frame.kind === DOWN.failed) question?.reject(new Error(valueIn<string>(frame)))
    else question?.resolve(frame)
  }

  #told({ topic, text }: Notice): void {
    for (const told of this.#heard.get(topic) ?? []) told(text)
  }

  #lose(error: Error): void {
    if (this.#fault) return
    this.#fault = error
    this.#leads = false
    this.#opened.reject(error)
    this.#lost.resolve(error)
    for (const { reject } of this.#questions.values()) reject(error)
    this.#questions.clear()
  }
}

const NOTHING = new Uint8Array()
