import { sql } from 'kysely'
import type { Database } from '../../database.ts'
import { MAIN_STREAM } from '../record/leaf.ts'

/** The last row of a stream. */
export interface StreamHead {
  readonly stream: string
  readonly head: number
}

type HeadsDatabase = Pick<Database, 'kysely' | 'engine'>

/** Reads the last row of every stream. */
export async function readHeads({ kysely, engine }: HeadsDatabase): Promise<readonly StreamHead[]> {
  if (engine === 'postgres') return (await EVERY_HEAD.execute(kysely)).rows
  const { rows } = await sql<{ head: number | null }>`select max(seq) as head from audit_rows`.execute(kysely)
  const head = rows[0]?.head ?? null
  return head === null ? [] : [{ stream: MAIN_STREAM, head }]
}

// From the name of one stream to the next by the key: a scan would read each row.
const EVERY_HEAD = sql<StreamHead>`
  with recursive named(stream) as (
    (select stream from audit_rows order by stream limit 1)
    union all
    select (select later.stream from audit_rows later where later.stream > named.stream order by later.stream limit 1)
    from named where named.stream is not null
  )
  select stream, (select max(seq) from audit_rows of_stream where of_stream.stream = named.stream) as head
  from named where stream is not null`

/** The part of the time that looking for new rows may take. */
const MAX_SHARE = 1 / 50
/** The age up to which several readers share a look. ms. */
const SHARED_MS = 200

/** Looks for new rows of any stream, for several readers, and less often the longer it takes: streams are never fewer. */
export class HeadWatch {
  readonly #database: HeadsDatabase
  #heads: Promise<readonly StreamHead[]> | null = null
  #until = Number.NEGATIVE_INFINITY

  constructor(database: HeadsDatabase) {
    this.#database = database
  }

  /** The heads as of a moment ago. */
  read(): Promise<readonly StreamHead[]> {
    if (this.#heads === null || performance.now() >= this.#until) this.#heads = this.#look()
    return this.#heads
  }

  async #look(): Promise<readonly StreamHead[]> {
    const from = performance.now()
    this.#until = Number.POSITIVE_INFINITY
    try {
      return await readHeads(this.#database)
    } finally {
      const now = performance.now()
      this.#until = now + Math.max(SHARED_MS, (now - from) / MAX_SHARE)
    }
  }
}
