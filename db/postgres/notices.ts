import type { Client } from 'pg'
import { AUTHORITY_TOPIC, NOTICE_MAX_BYTES, type NoticeChannel } from '../support/notices.ts'
import { NoticeAssembler, noticePayloads } from './pieces.ts'
import type { PresenceParticipant, PresenceSession } from './presence.ts'

/** The one channel: databases do not hear each other. */
const CHANNEL = 'sallyport'
/** What may wait for a server that is slow, in characters. What is told beyond is lost. */
const MAX_WAITING_CHARACTERS = 8 * NOTICE_MAX_BYTES

/** Notices by LISTEN and NOTIFY, in the session by which the process is present. The first `on` starts it. */
export class PostgresNotices implements NoticeChannel, PresenceParticipant {
  readonly #presence: () => PresenceSession
  readonly #raised: (generation: number) => void
  readonly #hearers = new Map<string, ((text: string) => void)[]>()
  #waiting = 0

  /** `raised` is told of each change of authority; {@link deliver} then tells those who hear of it. */
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

  /** Gives a text to those who hear its topic. */
  deliver(topic: string, text: string): void {
    for (const told of this.#hearers.get(topic) ?? []) told(text)
  }

  async opened(client: Client): Promise<void> {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    // By sender: what one transaction says comes together, and nothing of another's comes between.
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
