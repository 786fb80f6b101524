import { failed } from './errors.ts'
import type { EventReader } from './events.ts'
import { type Body, drain } from './exchange.ts'
import { kindOfMessage, type Message } from './message.ts'

const NONE: Iterator<Buffer> = [].values()

/**
 * The messages of an event stream: notifications and requests of the upstream as they come, and last the response,
 * with which it ends. What it throws is McpUpstreamError, or the reason why nobody waits any more. Nothing is read
 * ahead beyond what came with one reading of the connection.
 */
export class MessageStream implements AsyncIterable<Message> {
  readonly #body: Body
  readonly #events: EventReader
  readonly #judged: (data: Buffer) => Message | Promise<Message>
  /** What is left of the events that came together. */
  #come: Iterator<Buffer> = NONE
  #answered = false

  /** `judged`: reads the data of an event, or throws. */
  constructor(body: Body, events: EventReader, judged: (data: Buffer) => Message | Promise<Message>) {
    this.#body = body
    this.#events = events
    this.#judged = judged
  }

  /** True once the response has come. */
  get answered(): boolean {
    return this.#answered
  }

  /** Returns the next message, at once where it came with the one before; null behind the response. */
  next(): Message | null | Promise<Message | null> {
    if (this.#answered) return null
    const { value: data, done } = this.#come.next()
    if (done) return this.#read()
    const message = this.#judged(data)
    return message instanceof Promise ? message.then((read) => this.#passed(read)) : this.#passed(message)
  }

  /** Ends the request, unless it is answered. */
  close(): void {
    if (!this.#answered) this.#body.destroy()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Message> {
    try {
      for (let next = await this.next(); next !== null; next = await this.next()) yield next
    } finally {
      this.close()
    }
  }

  async #read(): Promise<Message> {
    for (let chunk = await this.#body.read(); chunk !== null; chunk = await this.#body.read()) {
      this.#come = this.#events.read(chunk)
      const { value: data, done } = this.#come.next()
      if (!done) return this.#passed(await this.#judged(data))
    }
    throw failed('the event stream ended before the response')
  }

  #passed(message: Message): Message {
    this.#answered = kindOfMessage(message) === 'response'
    // What follows the response is read, so that the connection can serve again.
    if (this.#answered) drain(this.#body)
    return message
  }
}
