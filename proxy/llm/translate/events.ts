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
  #rest = ''
  #begun = false
  #name = ''
  #data: string[] = []
  #length = 0

  add(chunk: Buffer): ServerEvent[] {
    let text = this.#rest + this.#decoder.write(chunk)
    if (!this.#begun && text !== '') {
      this.#begun = true
      if (text.startsWith('\uFEFF')) text = text.slice(1)
    }
    const events: ServerEvent[] = []
    // A carriage return at the end may be half of a line's end.
    const lines = text.split(/\r\n|\n|\r(?!$)/)
    this.#rest = lines.pop() ?? ''
    for (const line of lines) this.#addLine(line, events)
    if (this.#length + this.#rest.length > MAX_EVENT) throw new RangeError('an event is longer than 1 MiB')
    return events
  }

  #addLine(line: string, events: ServerEvent[]): void {
    if (line === '') {
      if (this.#data.length > 0) events.push({ name: this.#name, data: this.#data.join('\n') })
      this.#name = ''
      this.#data = []
      this.#length = 0
      return
    }
    const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
    if (field === 'event') this.#name = value
    else if (field === 'data') this.#data.push(value)
    this.#length += line.length
    if (this.#length > MAX_EVENT) throw new RangeError('an event is longer than 1 MiB')
  }
}
