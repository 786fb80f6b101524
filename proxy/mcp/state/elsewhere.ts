import { randomBytes } from 'node:crypto'
import type { NoticeChannel } from '../../../db/support/notices.ts'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'

/** The time that another process may take to answer. ms. */
const ANSWER_MS = 2_000
const MAX_OPEN_QUESTIONS = 1_000

/** Answers a question of another process; null: nobody here knows. Must not reject. */
type PeerQuestionHandler = (text: string) => Promise<string | null>

/** Questions and answers between processes that share a database, by their notices. */
export class PeerProcesses {
  readonly home = randomBytes(8).toString('hex')
  readonly #notices: NoticeChannel
  readonly #answers = new Map<string, PeerQuestionHandler>()
  readonly #open = new Map<number, (text: string | null) => void>()
  #asked = 0

  constructor(notices: NoticeChannel) {
    this.#notices = notices
    notices.on(topicOf(this.home), (text) => this.#heard(text))
  }

  answer(kind: string, answers: PeerQuestionHandler): void {
    this.#answers.set(kind, answers)
  }

  /**
   * Asks the process of that name. Resolves with null if it knows nothing, is gone, or says nothing in time.
   * Throws a RangeError if the text is too long for a notice.
   */
  ask(home: string, kind: string, text: string): Promise<string | null> {
    if (this.#open.size >= MAX_OPEN_QUESTIONS) return Promise.resolve(null)
    this.#asked += 1
    const question = this.#asked
    const { promise, resolve } = Promise.withResolvers<string | null>()
    this.#say(home, { kind, question, from: this.home, text })
    this.#open.set(question, resolve)
    const timer = setTimeout(resolve, ANSWER_MS, null)
    return promise.finally(() => {
      clearTimeout(timer)
      this.#open.delete(question)
    })
  }

  #heard(said: string): void {
    const { kind, question, from, text, answer } = parseJsonObject(Buffer.from(said)) ?? {}
    if (typeof question !== 'number') return
    if (answer !== undefined) this.#open.get(question)?.(typeof answer === 'string' ? answer : null)
    if (typeof kind !== 'string' || typeof from !== 'string' || typeof text !== 'string') return
    const answers = this.#answers.get(kind)
    if (answers && HOME.test(from))
      void answers(text)
        .then((found) => this.#say(from, { question, answer: found }))
        // The asker learns of it in time.
        .catch(() => {})
  }

  #say(home: string, said: object): void {
    this.#notices.notify(topicOf(home), JSON.stringify(said))
  }
}

const HOME = /^[0-9a-f]{16}$/
const topicOf = (home: string): string => `mcp-to:${home}`
