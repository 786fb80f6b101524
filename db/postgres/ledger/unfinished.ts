import type { Client } from 'pg'
import type { OpenDecision, UnfinishedDecisions } from '../../ledger/record/writer.ts'
import { timestamp } from '../../support/statement.ts'
import { HELD_STREAMS, STREAM_CLASS, streamKey } from './locks.ts'

/** The time that a stream is without a writer before it counts as gone. ms. */
const GONE_MS = 20_000
const MAX_DECISIONS_PER_UNIT = 512

/**
 * Finds decisions left open by streams whose writers are gone. Ask it repeatedly: it remembers. `stream`: the
 * asker's own.
 */
export class AbandonedStreams {
  readonly #stream: string
  readonly #goneSince = new Map<string, number>()

  constructor(stream: string) {
    this.#stream = stream
  }

  /** `now`: ms of a clock that only goes forward. */
  async look(client: Client, now: number): Promise<readonly UnfinishedDecisions[]> {
    const { rows } = await client.query<UnclosedStream>(OPEN_STREAMS, [this.#stream])
    const found: UnfinishedDecisions[] = []
    for (const stream of rows)
      if (this.#isGone(stream, now)) found.push(await closeAbandonedStream(client, stream))
    return found
  }

  #isGone({ stream, held }: UnclosedStream, now: number): boolean {
    if (held.includes(streamKey(stream))) {
      this.#goneSince.delete(stream)
      return false
    }
    const since = this.#goneSince.get(stream) ?? now
    this.#goneSince.set(stream, since)
    return now - since >= GONE_MS
  }
}

interface UnclosedStream {
  readonly stream: string
  readonly recovered: number
  /** The locks of streams that are held now, as {@link streamKey} has them. */
  readonly held: readonly number[]
}

async function closeAbandonedStream(
  client: Client,
  { stream, recovered }: UnclosedStream,
): Promise<UnfinishedDecisions> {
  const { rows: decisions } = await client.query<OpenDecision>(LEFT_OPEN, [stream, MAX_DECISIONS_PER_UNIT])
  const closedAt = decisions.length < MAX_DECISIONS_PER_UNIT ? timestamp(Date.now()) : null
  // The second process changes no row, and its outcomes are not written; nor are they if the writer has come
  // back. It cannot while the lock is held here, and finds then that its calls are ended (writer.ts).
  const parameters = [
    recovered + decisions.length,
    closedAt,
    stream,
    recovered,
    STREAM_CLASS,
    streamKey(stream),
  ]
  return { decisions, statements: [{ sql: CLOSE, parameters, changes: 1 }] }
}

// The locks are looked at, not taken: who comes back to its stream at this instant must not find it taken.
const OPEN_STREAMS = `select stream, recovered, ${HELD_STREAMS} as held
from audit_streams where closed_at is null and stream <> $1`

const LEFT_OPEN = `select request_id, principal_id, principal_type, action, tool, model, provider, cert_thumbprint,
  dpop_jkt, detail
from audit_log decision
where stream = $1 and status = 'allowed' and request_id is not null and not exists (
  select from audit_rows outcome where outcome.request_id = decision.request_id
    and outcome.status in ('success', 'error', 'truncated', 'unknown'))
order by seq limit $2`

const CLOSE = `update audit_streams set recovered = $1, closed_at = $2
where stream = $3 and recovered = $4 and closed_at is null and pg_try_advisory_xact_lock($5::int, $6::int)`
