import { messageOf } from '../../db/support/error-message.ts'

/** What one end may ask of the other: functions by name, whose values can be cloned. */
type Askable<Ours> = { readonly [Name in keyof Ours]: (value: never) => unknown }

type Message =
  | { readonly ask: string; readonly id: number; readonly value: unknown }
  | { readonly answer: number; readonly value: unknown }
  | { readonly answer: number; readonly problem: string }

interface Question {
  readonly resolve: (value: never) => void
  readonly reject: (error: Error) => void
}

/**
 * Questions and answers between a worker and the process above it, in both directions, over Node's own channel.
 * `Ours`: what is asked of this end. `Theirs`: of the other one. Both ends are this program: nothing is checked.
 */
export class Channel<Ours extends Askable<Ours>, Theirs extends Askable<Theirs>> {
  readonly #send: (message: Message) => void
  readonly #ours: Ours
  readonly #questions = new Map<number, Question>()
  #lastId = 0
  #ended: Error | null = null

  constructor(send: (message: Message) => void, ours: Ours) {
    this.#send = send
    this.#ours = ours
  }

  /** Rejects with what the other end has thrown, or where the channel ends first. */
  ask<Name extends keyof Theirs & string>(
    name: Name,
    value: Parameters<Theirs[Name]>[0],
  ): Promise<Awaited<ReturnType<Theirs[Name]>>> {
    if (this.#ended) return Promise.reject(this.#ended)
    this.#lastId += 1
    const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<Theirs[Name]>>>()
    this.#questions.set(this.#lastId, { resolve, reject })
    this.#send({ ask: name, id: this.#lastId, value })
    return promise
  }

  /** Takes a message from the other end. */
  hear(message: object): void {
    if ('ask' in message) void this.#answer(message as Extract<Message, { ask: string }>)
    if ('answer' in message) this.#answered(message as Exclude<Message, { ask: string }>)
  }

  /** Nothing is answered any more. */
  end(error: Error): void {
    this.#ended ??= error
    for (const { reject } of this.#questions.values()) reject(error)
    this.#questions.clear()
  }

  async #answer({ ask, id, value }: Extract<Message, { ask: string }>): Promise<void> {
    try {
      // Proven by ask() at the other end.
      const answer = await this.#ours[ask as keyof Ours](value as never)
      if (!this.#ended) this.#send({ answer: id, value: answer })
    } catch (error) {
      if (!this.#ended) this.#send({ answer: id, problem: messageOf(error) })
    }
  }

  #answered(message: Exclude<Message, { ask: string }>): void {
    const question = this.#questions.get(message.answer)
    this.#questions.delete(message.answer)
    if ('problem' in message) question?.reject(new Error(message.problem))
    else question?.resolve(message.value as never)
  }
}
