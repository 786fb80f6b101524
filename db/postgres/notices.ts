import { isAscii } from 'node:buffer'
import type { Client } from 'pg'
import { AUTHORITY_TOPIC, NOTICE_MAX_BYTES, type NoticeChannel } from '../support/notices.ts'
import type { PresenceParticipant, PresenceSession } from './presence.ts'

// PostgreSQL passes on payloads of less than 8,000 bytes, in the order of their transaction, and those of one
// transaction together. A payload is `topic piece/pieces text`, or `topic piece/pieces/64 text` if the text
// is base64.

/** The bytes of text in a payload. */
const PIECE_BYTES = 7_500

/** Makes the payloads of a text, in their order. Throws as {@link Notices.tell} does. */
export function noticePayloads(topic: string, text: string): readonly string[] {
  const bytes = Buffer.from(text)
  if (bytes.length > NOTICE_MAX_BYTES)
    throw new RangeError(`a notice is at most ${NOTICE_MAX_BYTES} bytes long, and not ${bytes.length}`)
  if (bytes.length <= PIECE_BYTES) return [`${topic} 1/1 ${text}`]
  // Cut anywhere: only if each character is one byte are the pieces texts of their own.
  const [whole, form] = isAscii(bytes) ? [text, ''] : [bytes.toString('base64'), '/64']
  const count = Math.ceil(whole.length / PIECE_BYTES)
  return Array.from({ length: count }, (_, n) => {
    const piece = whole.slice(n * PIECE_BYTES, (n + 1) * PIECE_BYTES)
    return `${topic} ${n + 1}/${count}${form} ${piece}`
  })
}

interface ReceivedNotice {
  readonly topic: string
  readonly text: string
}

export class NoticeAssembler {
  #topic = ''
  #pieces: string[] = []

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

/** The one channel: databases do not hear each other. */
const CHANNEL = 'sallyport'
/** Characters that may wait for a slow server. Notices beyond are lost. */
const MAX_WAITING_CHARACTERS = 8 * NOTICE_MAX_BYTES

/** Notices by LISTEN and NOTIFY, in the session by which the process is present. The first `on` starts it. */
export class PostgresNotices implements NoticeChannel, PresenceParticipant {
  readonly #presence: () => PresenceSession
  readonly #raised: (generation: number) => void
  readonly #hearers = new Map<string, ((text: string) => void)[]>()
  #waiting = 0

  constructor(presence: () => PresenceSession, raised: (generation: number) => void) {
    this.#presence = presence
    this.#raised = raised
  }

  get listening(): boolean {
    return this.#presence().stands
  }

  get since(): number {
    return this.#presence().since
  }

  notify(topic: string, text: string): void {
    const pieces = noticePayloads(topic, text)
    if (this.#waiting + text.length > MAX_WAITING_CHARACTERS) return
    this.#waiting += text.length
    this.#presence()
      .ask((client) => client.query(NOTIFY, [CHANNEL, pieces]))
      .catch(() => {})
      .finally(() => {
        this.#waiting -= text.length
      })
  }

  on(topic: string, told: (text: string) => void): void {
    this.#hearers.set(topic, [...(this.#hearers.get(topic) ?? []), told])
    this.#presence().start()
  }

  deliver(topic: string, text: string): void {
    for (const told of this.#hearers.get(topic) ?? []) told(text)
  }

  async opened(client: Client): Promise<void> {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    // Kept by sender: notices of one transaction come together, and nothing of another's comes between.
    const assembly = new NoticeAssembler()
    client.on('notification', ({ processId, payload = '' }) => {
      if (processId === rows[0]?.pid) return
      const told = assembly.take(payload)
      if (told?.topic === AUTHORITY_TOPIC) this.#raised(Number(told.text))
      else if (told) this.deliver(told.topic, told.text)
    })
    await client.query(`listen ${CHANNEL}`)
  }
}

const NOTIFY = 'select pg_notify($1, piece) from unnest($2::text[]) piece'
