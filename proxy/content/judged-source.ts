import { finished, pipeline, type Readable, Transform, type TransformCallback } from 'node:stream'
import type { AnswerScreen } from '../http/reply.ts'
import type { JudgedStream } from './judged-stream.ts'

/**
 * Leads the bytes of a source through a judged stream, and ends each with the other. `screen`: makes of them first
 * what the caller is to get.
 */
export function judgedSource(source: Readable, stream: JudgedStream, screen?: AnswerScreen): Readable {
  if (screen) pipeline(new ScreenedStream(source, screen), stream, () => {})
  else pipeline(source, stream, () => {})
  // An HTTP message may end cut short: only this says that its framing was honoured.
  if (!screen && 'complete' in source)
    Object.defineProperty(stream, 'complete', { get: () => source.complete })
  return stream
}

const NOTHING = Buffer.alloc(0)

/** A source as its screen shows it, which may write at times of its own, and end before the source does. */
class ScreenedStream extends Transform {
  readonly #source: Readable
  readonly #screen: AnswerScreen
  #isOver = false

  constructor(source: Readable, screen: AnswerScreen) {
    super()
    this.#source = source
    this.#screen = screen
    const end = screen.begin?.({
      write: (bytes) => {
        if (!this.#isOver && bytes.length > 0) this.push(bytes)
      },
      end: () => this.#endEarly(),
    })
    this.once('close', () => {
      end?.()
      source.destroy()
    })
    finished(source, { writable: false }, (error) => {
      if (error && !this.#isOver) this.destroy(error)
    })
    source.pipe(this)
  }

  #endEarly(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#source.unpipe(this)
    this.end()
    this.#source.destroy()
  }

  override _transform(chunk: Buffer, _: BufferEncoding, done: TransformCallback): void {
    const shown = this.#isOver ? NOTHING : this.#screen.push(chunk)
    done(
      shown === null ? new Error('the answer may not be shown') : null,
      shown && shown.length > 0 ? shown : null,
    )
  }

  override _flush(done: TransformCallback): void {
    const rest = this.#isOver ? null : this.#screen.flush()
    this.#isOver = true
    done(null, rest && rest.length > 0 ? rest : null)
  }
}
