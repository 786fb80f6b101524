import type { Client } from 'pg'
import { AUTHORITY, NOTICE_MAX_BYTES, type Notices } from '../support/notices.ts'
import { Assembly, piecesOf } from './pieces.ts'
import type { Part, Presence } from './presence.ts'

/** The one channel: databases do not hear each other. */
const CHANNEL = 'sallyport'
/** What may wait for a server that is slow, in characters. What is told beyond is lost. */
const MOST_WAITING = 8 * NOTICE_MAX_BYTES

/** Notices by LISTEN and NOTIFY, in the session by which the process is present. The first `hear` starts it. */
export class PostgresNotices implements Notices, Part {
  readonly #presence: () => Presence
  readonly #raised: (generation: number) => void
  readonly #hearers = new Map<string, ((text: string) => void)[]>()
  #waiting = 0

  /** `raised` is told of each change of authority; {@link deliver} then tells those who hear of it. */
  constructor(presence: () => Presence, raised: (generation: number) => void) {
    this.#presence = presence
    this.#raised = raised
  }

  get listening(): boolean {
    return this.#presence().stands
  }

  get since(): number {
    return this.#presence().since
  }

  tell(topic: string, text: string): void {
    const pieces = piecesOf(topic, text)
    if (this.#waiting + text.length > MOST_WAITING) return
    this.#waiting += text.length
    this.#presence()
      .ask((client) => client.query(NOTIFY, [CHANNEL, pieces]))
      .catch(() => {})
      .finally(() => {
        this.#waiting -= text.length
      })
  }

  hear(topic: string, told: (text: string) => void): void {
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
    const assembly = new Assembly()
    client.on('notification', ({ processId, payload = '' }) => {
      if (processId === rows[0]?.pid) return
      const told = assembly.take(payload)
      if (told?.topic === AUTHORITY) this.#raised(Number(told.text))
      else if (told) this.deliver(told.topic, told.text)
    })
    await client.query(`listen ${CHANNEL}`)
  }
}

const NOTIFY = 'select pg_notify($1, piece) from unnest($2::text[]) piece'
