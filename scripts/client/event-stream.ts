import type { Readable } from 'node:stream'

/** The beginnings of the lines that state the end of an answer; an error is none: it may be of a cut one. */
const ENDINGS =
  /^(?:data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|failed|incomplete|cancelled))) *$/
const MAX_LINE = 64
const LF = 0x0a
const CR = 0x0d

/**
 * Passes an event stream on. Ends as if its source had ended if that breaks off after the event that an
 * answer of these APIs ends with: it is whole then. Throws as the source does otherwise.
 */
export async function* eventStream(source: Readable): AsyncGenerator<Buffer> {
  const end = new AnswerEnd()
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      end.observe(chunk)
      yield chunk
    }
  } catch (error) {
    if (!end.reached) throw error
  }
}

class AnswerEnd {
  #line = ''
  #isEnding = false
  /** True: the last event that has ended is the last of an answer. */
  reached = false

  observe(chunk: Buffer): void {
    for (let from = 0; from < chunk.length; ) {
      const lf = chunk.indexOf(LF, from)
      const end = lf < 0 ? chunk.length : lf
      if (this.#line.length < MAX_LINE)
        this.#line += chunk.toString('latin1', from, Math.min(end, from + MAX_LINE))
      if (lf >= 0) this.#lineEnds()
      from = end + 1
    }
  }

  #lineEnds(): void {
    const line = this.#line.charCodeAt(this.#line.length - 1) === CR ? this.#line.slice(0, -1) : this.#line
    this.#line = ''
    if (line !== '') {
      this.#isEnding ||= ENDINGS.test(line)
      this.reached = false
    } else if (this.#isEnding) {
      this.reached = true
      this.#isEnding = false
    }
  }
}
