import { isAscii } from 'node:buffer'
import { NOTICE_MAX_BYTES } from '../support/notices.ts'

// PostgreSQL passes on payloads of less than 8,000 bytes, in the order of their transaction, and those of one
// transaction together. A payload is `topic piece/pieces text`, or `topic piece/pieces/64 text` where the text is base64.

/** The bytes of text in a payload. */
const PIECE_BYTES = 7_500

/** Makes the payloads of a text, in their order. Throws as {@link Notices.tell} does. */
export function noticePayloads(topic: string, text: string): readonly string[] {
  const bytes = Buffer.from(text)
  if (bytes.length > NOTICE_MAX_BYTES)
    throw new RangeError(`a notice is at most ${NOTICE_MAX_BYTES} bytes long, and not ${bytes.length}`)
  if (bytes.length <= PIECE_BYTES) return [`${topic} 1/1 ${text}`]
  // Cut anywhere: only where each character is one byte are the pieces texts of their own.
  const [whole, form] = isAscii(bytes) ? [text, ''] : [bytes.toString('base64'), '/64']
  const count = Math.ceil(whole.length / PIECE_BYTES)
  return Array.from({ length: count }, (_, n) => {
    const piece = whole.slice(n * PIECE_BYTES, (n + 1) * PIECE_BYTES)
    return `${topic} ${n + 1}/${count}${form} ${piece}`
  })
}

export interface ReceivedNotice {
  readonly topic: string
  readonly text: string
}

/** Puts texts together from their payloads. What begins in the middle, or has another form, is passed over. */
export class NoticeAssembler {
  #topic = ''
  #pieces: string[] = []

  /** Takes the next payload. Returns the text that it ends, or null. */
  take(payload: string): ReceivedNotice | null {
    const [, topic = '', n, count, form, piece = ''] = PAYLOAD.exec(payload) ?? []
    if (Number(n) === 1) this.#pieces = []
    else if (topic !== this.#topic || Number(n) !== this.#pieces.length + 1) return null
    this.#topic = topic
    this.#pieces.push(piece)
    if (Number(n) < Number(count)) return null
    const whole = this.#pieces.join('')
    this.#pieces = []
    return { topic, text: form === undefined ? whole : Buffer.from(whole, 'base64').toString() }
  }
}

const PAYLOAD = /^([\w:-]+) (\d+)\/(\d+)(\/64)? (.*)$/s
