import type { Client } from 'pg'
import {
  CHANGING_ROWS_SQL,
  changingRowsSqlFor,
  RARE_ACTION_SQL,
  SET_CHANGES_SQL,
  subjectText,
} from '../../ledger/rehearsal/changing-rows.ts'
import type { WalkedPart, WalkScope } from '../../ledger/rehearsal/rehearse.ts'

/** Places asked for at once, whatever is found. */
const SPAN = 2_000
const FETCHED = 1_000

interface WalkedLeaf {
  readonly leaf: string
}

interface PlacedWalkedLeaf extends WalkedLeaf {
  readonly place: number
}

const leavesOf = (rows: readonly WalkedLeaf[]): readonly string[] => rows.map(({ leaf }) => leaf)

const inWindow = (since: string, until: string): string =>
  `recorded_at >= ${since} and recorded_at < ${until}`

const decisions = (since: string, until: string): string =>
  `status in ('allowed', 'denied') and ${inWindow(since, until)}`

/**
 * Walks over the rows after a place that a rehearsal needs, by place (docs/ledger.md#places), up to those there at the
 * start. Fetches ahead. Rejects if the server is a standby.
 */
export async function* walkPostgresLedger(
  client: Client,
  wanted: WalkScope,
  after: number,
): AsyncGenerator<WalkedPart> {
  const { rows } = await client.query<{ last: number; standby: boolean }>(
    'select coalesce(max(place), 0) as last, pg_is_in_recovery() as standby from audit_rows',
  )
  const { last = 0, standby = false } = rows[0] ?? {}
  if (standby) throw new Error('the database is a standby')
  yield* wanted.principals === null
    ? walkOverAll(client, wanted, [after, last])
    : walkAbout(client, wanted, wanted.principals, [after, last])
}

/** After the first place, up to the second. */
type PlaceRange = readonly [after: number, last: number]

async function* walkOverAll(
  client: Client,
  { since, until, outcomes = false }: WalkScope,
  [after, last]: PlaceRange,
): AsyncGenerator<WalkedPart> {
  const calls = (outcomes ? inWindow : decisions)('$3', '$4')
  const span = (from: number) =>
    client.query<WalkedLeaf>(
      `select leaf from audit_log
      where place > $1 and place <= $2 and ((${calls}) or ${RARE_ACTION_SQL}) order by place`,
      [from, Math.min(from + SPAN, last), since, until],
    )
  let coming = span(after)
  for (let from = after; from < last; from += SPAN) {
    const { rows } = await coming
    coming = span(from + SPAN)
    yield { leaves: leavesOf(rows), rows: Math.min(from + SPAN, last), of: last }
  }
}

/** Reads by the indexes: changes, and the calls of a few principals, fetched in parts. */
async function* walkAbout(
  client: Client,
  { since, until, callsAlone = false }: WalkScope,
  principals: readonly string[],
  [after, last]: PlaceRange,
): AsyncGenerator<WalkedPart> {
  // No pattern, but a text: a name may hold anything.
  const held = 'exists (select 1 from unnest($5::text[]) as held where strpos(leaf, held) > 0)'
  const changes = callsAlone
    ? `${SET_CHANGES_SQL} and recorded_at >= $3 and ${held}`
    : changingRowsSqlFor([held])
  await client.query('begin')
  await client.query(
    `declare walk no scroll cursor for
    select place, leaf from audit_log where ${changes} and place <= $1 and place > $6
    union all
    select place, leaf from audit_log
    where principal_id = any($2) and (${decisions('$3', '$4')}) and not (${CHANGING_ROWS_SQL}) and place <= $1 and place > $6
    order by place`,
    [last, principals, since, until, principals.map(subjectText), after],
  )
  const part = () => client.query<PlacedWalkedLeaf>(`fetch ${FETCHED} from walk`)
  let coming = part()
  for (;;) {
    const { rows } = await coming
    const furthest = rows.at(-1)
    if (!furthest) break
    coming = part()
    yield { leaves: leavesOf(rows), rows: furthest.place, of: last }
  }
  await client.query('commit')
}
