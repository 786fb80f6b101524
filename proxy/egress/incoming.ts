import type { Dispatcher } from 'undici'
import { ByteCollector } from '../../plugins/collect.ts'

const NOTHING = Buffer.alloc(0)

type FlowController = Pick<Dispatcher.DispatchController, 'paused' | 'resume' | 'pause'>

/**
 * Bytes of an answer that have come and were not taken yet. A sole piece is handed on as it came. Has no
 * limit of its own: one reading of the connection has.
 */
export class AnswerBuffer {
  #first: Buffer | null = null
  #more: ByteCollector | null = null
  /** True: the connection has been told to wait, and has handed over one more piece before it did. */
  #waits = false

  get isEmpty(): boolean {
    return this.#first === null
  }

  add(controller: FlowController, piece: Buffer): void {
    if (this.#first) {
      this.#more ??= new ByteCollector(Number.POSITIVE_INFINITY)
      this.#more.add(piece)
    } else this.#first = piece
    if (!controller.paused) return
    // The connection is at its end and hands over the rest; to stop it at each piece would copy the rest
    // again each time.
    if (this.#waits) controller.resume()
    this.#waits = !this.#waits
  }

  /** Lets a connection go on that was told to wait. */
  resume(controller: FlowController): void {
    this.#waits = false
    controller.resume()
  }

  takeAll(): Buffer {
    const first = this.#first ?? NOTHING
    const bytes = this.#more ? Buffer.concat([first, this.#more.bytes()]) : first
    this.#first = null
    this.#more = null
    return bytes
  }
}
