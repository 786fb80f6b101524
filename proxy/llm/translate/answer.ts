import type { ApiWire } from '../dialects/dialect.ts'
import { ChatAnswerReader } from './chat/read-answer.ts'
import { ChatAnswerWriter } from './chat/write-answer.ts'
import { ServerEventReader } from './events.ts'
import { MessagesAnswerReader } from './messages/read-answer.ts'
import { MessagesAnswerWriter } from './messages/write-answer.ts'
import type { AnswerEvent } from './model/answer.ts'
import type { AnswerMeans, AnswerReader, AnswerWriter } from './model/reader.ts'
import type { AnswerWriting } from './model/writing.ts'
import { ResponsesAnswerReader } from './responses/read-answer.ts'
import { ResponsesAnswerWriter } from './responses/write-answer.ts'
import { StopWords } from './stop-words.ts'

const READERS = {
  messages: MessagesAnswerReader,
  chat: ChatAnswerReader,
  responses: ResponsesAnswerReader,
} as const satisfies Record<ApiWire, new (reading: AnswerMeans) => AnswerReader>

const WRITERS = {
  messages: MessagesAnswerWriter,
  chat: ChatAnswerWriter,
  responses: ResponsesAnswerWriter,
} as const satisfies Record<ApiWire, new (writing: AnswerWriting) => AnswerWriter>

interface AnswerWires {
  /** The provider's. */
  readonly from: ApiWire
  /** The caller's. */
  readonly to: ApiWire
}

const NOTHING = Buffer.alloc(0)
/** Characters that are counted at a time. */
const COUNTED = 4_096

/** Writes a provider's answer in the caller's wire, as it comes. */
export class AnswerTranslator {
  readonly isStream: boolean
  readonly #reader: AnswerReader
  readonly #writer: AnswerWriter
  readonly #events = new ServerEventReader()
  readonly #stopWords: StopWords
  readonly #fits: (kept: number) => boolean
  /** True: the writer repeats the texts of the answer at its end. */
  readonly #keepsTexts: boolean
  #isText = false
  /** Characters of the pieces that the writer keeps. */
  #kept = 0
  /** The reason why it is broken; null: it is not. For the log: it holds no word of the provider. */
  broken: string | null = null

  /**
   * `stopWords`: those that the provider was not told of. `fits`: counts the most that is kept of the answer at once;
   * false breaks it.
   */
  constructor(
    { from, to }: AnswerWires,
    {
      reading,
      writing,
      stopWords,
      fits,
    }: {
      reading: AnswerMeans
      writing: AnswerWriting
      stopWords: readonly string[]
      fits: (bytes: number) => boolean
    },
  ) {
    this.isStream = writing.isStream
    this.#reader = new READERS[from](reading)
    this.#writer = new WRITERS[to](writing)
    this.#stopWords = new StopWords(stopWords)
    this.#fits = fits
    this.#keepsTexts = to === 'responses' || !writing.isStream
  }

  /** True once the end of the answer is written. */
  get isWhole(): boolean {
    return this.#writer.isWhole
  }

  /** True once nothing that is yet to come counts, but the provider's usage. */
  get isEnding(): boolean {
    return this.#isOver || this.#reader.canEnd || this.#stopWords.hasStopped
  }

  /** True if the answer was ended here, at a stop word. */
  get isStopped(): boolean {
    return this.#stopWords.hasStopped
  }

  /** The event or comment that says only that the answer lives; empty: it has ended. */
  ping(): Buffer {
    return this.#isOver ? NOTHING : Buffer.from(this.#writer.ping)
  }

  /** Takes the next bytes of a stream. Returns what may be written by now. */
  push(chunk: Buffer): Buffer {
    if (this.#isOver) return NOTHING
    return this.#guarded((written) => {
      for (const event of this.#events.add(chunk))
        written.push(event.name === 'ping' ? this.#writer.ping : this.#write(this.#reader.add(event)))
      this.#count()
    })
  }

  /** Returns what is to be written when nothing more comes. */
  flush(): Buffer {
    return this.#isOver ? NOTHING : this.#guarded((written) => written.push(this.#write(this.#reader.end())))
  }

  /** Returns the event of an answer that is cut off, for which its provider may not be to blame; empty: it is over. */
  breakOff(): string {
    return this.#isOver ? '' : this.#writer.add({ kind: 'broken', why: 'the answer was cut off' })
  }

  /** Translates a whole answer; null: it cannot be. */
  document(body: Buffer): Buffer | null {
    this.#guarded((written) => written.push(this.#write(this.#reader.document(body.toString()))))
    const document = this.#writer.document()
    return document && Buffer.from(JSON.stringify(document))
  }

  get #isOver(): boolean {
    return this.broken !== null || this.#writer.isOver
  }

  #count(): void {
    if (this.#isOver) return
    const kept = this.#events.kept + this.#reader.kept + this.#kept
    if (!this.#fits(kept - (kept % COUNTED)))
      throw new RangeError('there is no memory left for what is kept of the answer')
  }

  /** Breaks an answer that is too long, or no JSON, behind what was written of it. */
  #guarded(translate: (written: string[]) => void): Buffer {
    const written: string[] = []
    try {
      translate(written)
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error
      written.push(this.#write([{ kind: 'broken', why: error.message }]))
    }
    return Buffer.from(written.join(''))
  }

  #write(events: readonly AnswerEvent[]): string {
    let text = ''
    for (const event of this.#stopWords.pass(events)) {
      if (this.#isOver) break
      if (event.kind === 'broken') this.broken = event.why
      else if (event.kind === 'open') this.#isText = event.part.kind === 'text'
      else if (event.kind === 'delta' && (this.#keepsTexts || !this.#isText)) this.#kept += event.text.length
      text += this.#writer.add(event)
    }
    if (this.#writer.isOver && !this.isWhole) this.broken ??= 'a call of the answer is not finished'
    return text
  }
}
