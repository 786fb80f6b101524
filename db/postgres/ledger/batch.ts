import { hash } from 'node:crypto'
import { type Client, DatabaseError } from 'pg'
import { type MeterBook, withUsage } from '../../ledger/meters/meter-book.ts'
import { leafDetailOf, placeFiller, type RowDraft } from '../../ledger/record/draft.ts'
import { CommitInDoubt } from '../../ledger/record/entry.ts'
import { assembleLeaf, GENESIS_HASH, hashOf, type StoredRow } from '../../ledger/record/leaf.ts'
import type { LedgerWork, WorkResult } from '../../ledger/record/writer.ts'
import { messageOf } from '../../support/error-message.ts'
import type { LedgerStatement, RowAssertion } from '../../support/statement.ts'
import { ClaimAllocator, claimDigestsOf, deleteClaims, deleteClaimsQuery, insertClaims } from './claims.ts'
import { storeRowsQuery } from './columns.ts'
import { BEGIN_CHANGES, BEGIN_DECISIONS } from './locks.ts'
import { lockMeters, storeMetersQuery } from './meters.ts'

/**
 * Why a unit's statement was refused; null if the error is the whole batch's. By the classes of PostgreSQL's
 * appendix A.
 */
function postgresStatementRefusal(error: unknown): 'conflict' | 'duplicate' | 'fault' | null {
  if (!(error instanceof DatabaseError)) return null
  const { code = '' } = error
  if (code === UNIQUE_VIOLATION) return 'duplicate'
  if (code.startsWith('23')) return 'conflict'
  return /^(22|42|0A|P0)/.test(code) ? 'fault' : null
}

const UNIQUE_VIOLATION = '23505'

/** Asks each distinct assertion once. Those with one text are one prepared question about many parameters. */
async function evaluateAssertions(
  client: Client,
  assertions: readonly RowAssertion[],
): Promise<(assertion: RowAssertion) => boolean> {
  const bySql = Map.groupBy(
    new Map(assertions.map((assertion) => [keyOf(assertion), assertion])).values(),
    ({ sql }) => sql,
  )
  const answers = await Promise.all([...bySql].map(([sql, alike]) => ask(client, sql, alike)))
  const found = new Set(answers.flat())
  return (assertion) => found.has(keyOf(assertion))
}

const keyOf = ({ sql, parameters }: RowAssertion): string => JSON.stringify([sql, parameters])

async function ask(client: Client, sql: string, alike: readonly RowAssertion[]): Promise<readonly string[]> {
  const { rows } = await client.query<[holds: boolean]>({
    ...questionOf(sql, alike[0]?.parameters ?? []),
    values: (alike[0]?.parameters ?? []).map((_, place) => alike.map(({ parameters }) => parameters[place])),
    rowMode: 'array',
  })
  return alike.filter((_, place) => rows[place]?.[0] === true).map(keyOf)
}

/** Each parameter of the text becomes a column of the question. */
function questionOf(sql: string, parameters: RowAssertion['parameters']) {
  if (parameters.length === 0) return { name: nameOf(sql), text: `select exists (${sql})` }
  const lists = parameters.map(
    (one, place) => `$${place + 1}::${typeof one === 'number' ? 'bigint' : 'text'}[]`,
  )
  const columns = parameters.map((_, place) => `p${place + 1}`)
  const about = `unnest(${lists.join(', ')}) with ordinality as asked(${columns.join(', ')}, place)`
  const text = `select exists (${sql.replace(/\$(\d+)/g, 'asked.p$1')}) from ${about} order by asked.place`
  return { name: nameOf(text), text }
}

const nameOf = (text: string): string => `asserted ${hash('sha256', text).slice(0, 16)}`

export interface ChainTip {
  readonly seq: number
  readonly hash: string
}

export const EMPTY_CHAIN: ChainTip = { seq: 0, hash: GENESIS_HASH }

export interface PreparedBatch {
  readonly results: readonly WorkResult[]
  readonly rows: readonly StoredRow[]
  readonly tip: ChainTip
  readonly meters: ReturnType<MeterBook['changed']>
  /** The claims of units that were refused after they were made. */
  readonly unclaimed: readonly string[]
}

/**
 * Does a batch in one transaction, all but its rows and meters: each unit whole or refused alone, in one round trip if
 * nothing needs an earlier answer. If it rejects, the transaction is still open.
 */
export async function prepareBatch(
  client: Client,
  stream: string,
  head: ChainTip,
  batch: readonly LedgerWork[],
): Promise<PreparedBatch> {
  const refused = new Map<LedgerWork, WorkResult>()
  // Never awaited alone, and never left: whatever is lost with the connection is heard of here.
  let begun: Promise<unknown> = client.query(batch.some(changes) ? BEGIN_CHANGES : BEGIN_DECISIONS)
  const runs = runsOf(batch)
  for (const run of runs.slice(0, -1)) {
    await Promise.all([begun, judge(client, run, refused)])
    begun = Promise.resolve()
  }
  // Meters after all claims: of two batches that share both, neither may have a meter while it waits for a claim.
  const judging = judge(client, runs.at(-1) ?? [], refused)
  const [, , meters] = await Promise.all([begun, judging, lockMeters(client, batch)])
  const rows: StoredRow[] = []
  const unclaimed: string[] = []
  let tip = head
  const results = batch.map((work): WorkResult => {
    const no = refused.get(work)
    if (no) return no
    const over = meters.misfit(work.reservations)
    if (over) {
      unclaimed.push(...claimDigestsOf(work))
      return { refused: 'over', over }
    }
    const numbers = meters.apply(work.reservations, work.settlements)
    const filled = numbers.length === 0 ? null : placeFiller(numbers)
    const sealed = work.drafts.map((draft) => {
      const row = rowOf(stream, filled ? filled(draft) : draft, tip)
      rows.push(row)
      tip = { seq: row.seq, hash: row.row_hash }
      return { stream, ...tip }
    })
    return { sealed: withUsage(sealed, numbers, work.reservations.length) }
  })
  return { results, rows, tip, meters: meters.changed(), unclaimed }
}

/** The chain is not the one that its writer left there: nothing more is to be written to it. */
export class BrokenChainError extends Error {}

/**
 * Stores a batch's rows and meters and commits, in one round trip. Rejects with {@link CommitInDoubt} if nobody
 * knows the outcome; else nothing was stored.
 */
export async function storeBatch(
  client: Client,
  stream: string,
  { rows, meters, unclaimed }: Pick<PreparedBatch, 'rows' | 'meters' | 'unclaimed'>,
  inColumns: boolean,
): Promise<void> {
  const inserting = rows.length > 0 ? client.query(storeRowsQuery(rows, inColumns)) : null
  const counting = meters.length > 0 ? client.query(storeMetersQuery(meters)) : null
  const undoing = unclaimed.length > 0 ? client.query(deleteClaimsQuery(unclaimed)) : null
  const [inserted, counted, undone, committed] = await Promise.allSettled([
    inserting,
    counting,
    undoing,
    client.query('commit'),
  ])
  // A transaction in which a statement has failed is rolled back by its commit.
  if (inserted.status === 'rejected' && inserted.reason instanceof DatabaseError)
    throw failureOf(stream, inserted.reason)
  for (const other of [counted, undone])
    if (other.status === 'rejected' && other.reason instanceof DatabaseError) throw other.reason
  if (committed.status === 'rejected')
    throw new CommitInDoubt('the commit was not answered', { cause: committed.reason })
  const { command } = committed.value
  if (command !== 'COMMIT') throw new CommitInDoubt(`the commit was answered with ${command}`)
}

function failureOf(stream: string, error: DatabaseError): Error {
  if (!NOT_THE_NEXT.test(error.code ?? '')) return error
  return new BrokenChainError(`audit stream ${stream} was changed under its writer: ${error.message}`, {
    cause: error,
  })
}

// The guard's exception, and the keys of the table.
const NOT_THE_NEXT = /^(P0001|23505)$/

const changes = ({ statements }: LedgerWork): boolean => statements.some(({ beside }) => beside === undefined)
const standsAlone = ({ statements }: LedgerWork): boolean =>
  statements.some(({ beside }) => beside !== 'claim')

/** Each change stands alone: a later decision is made by the state it leaves. */
function runsOf(batch: readonly LedgerWork[]): readonly (readonly LedgerWork[])[] {
  const runs: LedgerWork[][] = []
  let alone = true
  for (const work of batch) {
    if (alone || standsAlone(work)) runs.push([])
    runs.at(-1)?.push(work)
    alone = standsAlone(work)
  }
  return runs
}

/** Asks the assertions of a run's units, and writes all but their rows. Says which are refused. */
async function judge(
  client: Client,
  run: readonly LedgerWork[],
  refused: Map<LedgerWork, WorkResult>,
): Promise<void> {
  const [first] = run
  if (first && standsAlone(first)) {
    const { stale } = await staleCheck(client, run)
    const no = stale(first) ?? (await change(client, first))
    if (no) refused.set(first, no)
    return
  }
  // The claims of units that are stale are made too, and undone: they are few, and nobody waits for two
  // answers.
  const [{ stale }, made] = await Promise.all([staleCheck(client, run), insertClaims(client, run)])
  const took = new ClaimAllocator(made)
  for (const work of run) {
    const no = stale(work) ?? (took.take(work) ? null : PASSED)
    if (no) refused.set(work, no)
  }
  await deleteClaims(client, took.left)
}

const PASSED: WorkResult = { refused: 'duplicate', message: 'what passes once has passed' }

async function staleCheck(
  client: Client,
  run: readonly LedgerWork[],
): Promise<{ readonly stale: (work: LedgerWork) => WorkResult | null }> {
  const holds = await evaluateAssertions(
    client,
    run.flatMap((work) => work.assertions),
  )
  return {
    stale: ({ assertions }) => {
      const broken = assertions.find((assertion) => !holds(assertion))
      return broken ? { refused: 'stale', message: `"${broken.sql}" finds no row` } : null
    },
  }
}

/** Does one unit under a savepoint, statement by statement. Returns why it is refused, or null. */
async function change(client: Client, work: LedgerWork): Promise<WorkResult | null> {
  await client.query('savepoint unit')
  const no = await firstRefused(client, work.statements)
  await client.query(no ? 'rollback to unit' : 'release unit')
  return no
}

async function firstRefused(
  client: Client,
  statements: readonly LedgerStatement[],
): Promise<WorkResult | null> {
  for (const { sql, parameters, changes: wanted } of statements) {
    try {
      const { rowCount } = await client.query(sql, [...parameters])
      if (rowCount !== (wanted ?? rowCount))
        return { refused: 'conflict', message: `"${sql}" changed ${rowCount} rows, not ${wanted}` }
    } catch (error) {
      const no = postgresStatementRefusal(error)
      if (no === null) throw error
      return { refused: no, message: messageOf(error) }
    }
  }
  return null
}

function rowOf(stream: string, draft: RowDraft, { seq: before, hash: prevHash }: ChainTip): StoredRow {
  const seq = before + 1
  const leaf = assembleLeaf(draft, prevHash, seq)
  return {
    ...draft,
    detail: leafDetailOf(leaf),
    stream,
    seq,
    prev_hash: prevHash,
    row_hash: hashOf(leaf),
    leaf,
  }
}
