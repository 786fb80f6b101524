import { StringDecoder } from 'node:string_decoder'

/** A server-sent event (WHATWG HTML §9.2.6). */
export interface ServerEvent {
  readonly name: string
  readonly data: string
}

/** Characters. A longer event breaks the answer. */
const MAX_EVENT = 1024 * 1024

/** Reads server-sent events in chunks cut anywhere. Throws RangeError for an event of more than 1 MiB. */
export class ServerEventReader {
  readonly #decoder = new StringDecoder('utf8')
  /** The pieces of the line that has begun: they are joined once, however small they are. */
  #pieces: string[] = []
  /** Characters of these, and of the lines of the event that has begun. */
  #lineLength = 0
  #eventLength = 0
  #hasBegun = false
  #name = ''
  #data: string[] = []

  /** Characters of the event that has begun. */
  get kept(): number {
    return this.#eventLength + this.#lineLength
  }

  add(chunk: Buffer): ServerEvent[] {
    let text = this.#decoder.write(chunk)
    if (!this.#hasBegun && text !== '') {
      this.#hasBegun = true
      if (text.startsWith('\uFEFF')) text = text.slice(1)
    }
    const events: ServerEvent[] = []
    const wasReturned = this.#pieces.at(-1)?.endsWith('\r') === true
    this.#pieces.push(text)
    this.#lineLength += text.length
    if (wasReturned || /[\r\n]/.test(text)) this.#addLines(events)
    if (this.kept > MAX_EVENT) throw new RangeError('an event is longer than 1 MiB')
    return events
  }

  #addLines(events: ServerEvent[]): void {
    // A carriage return at the end may be half of a line's end.
    const lines = this.#pieces.join('').split(/\r\n|\n|\r(?!$)/)
    const rest = lines.pop() ?? ''
    for (const line of lines) this.#addLine(line, events)
    this.#pieces = [rest]
    this.#lineLength = rest.length
  }

  #addLine(line: string, events: ServerEvent[]): void {
    this.#eventLength += line.length + 1
    if (this.#eventLength > MAX_EVENT) throw new RangeError('an event is longer than 1 MiB')
    const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
    if (field === 'event') this.#name = value
    else if (field === 'data') this.#data.push(value)
    if (line !== '') return
    if (this.#data.length > 0) events.push({ name: this.#name, data: this.#data.join('\n') })
    this.#name = ''
    this.#data = []
    this.#eventLength = 0
  }
}
