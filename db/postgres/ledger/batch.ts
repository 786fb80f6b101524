import { type Client, DatabaseError } from 'pg'
import type { Draft } from '../../ledger/record/draft.ts'
import { InDoubt } from '../../ledger/record/entry.ts'
import { GENESIS, hashOf, leafIn } from '../../ledger/record/leaf.ts'
import type { Work, WorkResult } from '../../ledger/record/writer.ts'
import { messageOf } from '../../support/error-message.ts'
import type { Statement } from '../../support/statement.ts'
import { holding } from './assertions.ts'
import { Claims, claim, unclaim } from './claims.ts'
import { refusalOf } from './errors.ts'
import { BEGIN_CHANGES, BEGIN_DECISIONS } from './locks.ts'
import { insertOf, type LedgerRow } from './rows.ts'

/** The end of a chain. At `seq` 0 there is no row. */
export interface Link {
  readonly seq: number
  readonly hash: string
}

export const NO_ROWS: Link = { seq: 0, hash: GENESIS }

/** What a batch comes to, once its rows are stored. */
export interface Prepared {
  readonly results: readonly WorkResult[]
  readonly rows: readonly LedgerRow[]
  readonly tip: Link
}

/**
 * Does a batch in one transaction, all but its rows: each unit whole or refused alone. What needs no answer of what
 * stands before it is sent with it: a batch of decisions is one round trip here, and one in {@link store}. Rejects where
 * nothing of it can be stored; the transaction is then still open.
 */
export async function prepare(
  client: Client,
  stream: string,
  head: Link,
  batch: readonly Work[],
): Promise<Prepared> {
  const refused = new Map<Work, WorkResult>()
  const [first = [], ...later] = runsOf(batch)
  const begin = client.query(batch.some(changes) ? BEGIN_CHANGES : BEGIN_DECISIONS)
  await Promise.all([begin, judge(client, first, refused)])
  for (const run of later) await judge(client, run, refused)
  const rows: LedgerRow[] = []
  let tip = head
  const results = batch.map((work): WorkResult => {
    const no = refused.get(work)
    if (no) return no
    const sealed = work.drafts.map((draft) => {
      const row = rowOf(stream, draft, tip)
      rows.push(row)
      tip = { seq: row.seq, hash: row.row_hash }
      return { stream, ...tip }
    })
    return { sealed }
  })
  return { results, rows, tip }
}

/** The chain in the database is not the one that its writer has left there: nothing more is to be written to it. */
export class ChainBroken extends Error {}

/**
 * Stores the rows of a batch and commits, in one round trip. Rejects with {@link InDoubt} where nobody knows whether it
 * was; with anything else where nothing was stored.
 */
export async function store(client: Client, stream: string, rows: readonly LedgerRow[]): Promise<void> {
  const inserting = rows.length > 0 ? client.query(insertOf(rows)) : null
  const [inserted, committed] = await Promise.allSettled([inserting, client.query('commit')])
  // A transaction in which a statement has failed is rolled back by its commit.
  if (inserted.status === 'rejected' && inserted.reason instanceof DatabaseError)
    throw failureOf(stream, inserted.reason)
  if (committed.status === 'rejected')
    throw new InDoubt('the commit was not answered', { cause: committed.reason })
  const { command } = committed.value
  if (command !== 'COMMIT') throw new InDoubt(`the commit was answered with ${command}`)
}

function failureOf(stream: string, error: DatabaseError): Error {
  if (!NOT_THE_NEXT.test(error.code ?? '')) return error
  return new ChainBroken(`audit stream ${stream} was changed under its writer: ${error.message}`, {
    cause: error,
  })
}

// What the guard raises, and the keys of the table.
const NOT_THE_NEXT = /^(P0001|23505)$/

const changes = ({ statements }: Work): boolean => statements.some(({ beside }) => beside === undefined)
const standsAlone = ({ statements }: Work): boolean => statements.some(({ beside }) => beside !== 'claim')

/** Each change stands alone: a decision behind it is made by what the change has left. */
function runsOf(batch: readonly Work[]): readonly (readonly Work[])[] {
  const runs: Work[][] = []
  let alone = true
  for (const work of batch) {
    if (alone || standsAlone(work)) runs.push([])
    runs.at(-1)?.push(work)
    alone = standsAlone(work)
  }
  return runs
}

/** Asks what the units of a run assert, and makes what they write but their rows. Says which are refused. */
async function judge(client: Client, run: readonly Work[], refused: Map<Work, WorkResult>): Promise<void> {
  const [first] = run
  if (first && standsAlone(first)) {
    const { stale } = await asked(client, run)
    const no = stale(first) ?? (await change(client, first))
    if (no) refused.set(first, no)
    return
  }
  // The claims of units that are stale are made too, and undone: they are few, and nobody waits for two answers.
  const [{ stale }, made] = await Promise.all([asked(client, run), claim(client, run)])
  const took = new Claims(made)
  for (const work of run) {
    const no = stale(work) ?? (took.take(work) ? null : PASSED)
    if (no) refused.set(work, no)
  }
  await unclaim(client, took.left)
}

const PASSED: WorkResult = { refused: 'duplicate', message: 'what passes once has passed' }

/** Asks the assertions of all of them at once. */
async function asked(
  client: Client,
  run: readonly Work[],
): Promise<{ readonly stale: (work: Work) => WorkResult | null }> {
  const holds = await holding(
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
async function change(client: Client, work: Work): Promise<WorkResult | null> {
  await client.query('savepoint unit')
  const no = await firstRefused(client, work.statements)
  await client.query(no ? 'rollback to unit' : 'release unit')
  return no
}

async function firstRefused(client: Client, statements: readonly Statement[]): Promise<WorkResult | null> {
  for (const { sql, parameters, changes: wanted } of statements) {
    try {
      const { rowCount } = await client.query(sql, [...parameters])
      if (rowCount !== (wanted ?? rowCount))
        return { refused: 'conflict', message: `"${sql}" changed ${rowCount} rows, not ${wanted}` }
    } catch (error) {
      const no = refusalOf(error)
      if (no === null) throw error
      return { refused: no, message: messageOf(error) }
    }
  }
  return null
}

function rowOf(stream: string, draft: Draft, { seq: before, hash: prevHash }: Link): LedgerRow {
  const seq = before + 1
  const leaf = leafIn(draft, prevHash, seq)
  const { recorded_at, request_id, principal_id, action, status } = draft
  const beside = { recorded_at, request_id, principal_id, action, status }
  return { stream, seq, ...beside, prev_hash: prevHash, row_hash: hashOf(leaf), leaf }
}
