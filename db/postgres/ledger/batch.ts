import { type Client, DatabaseError } from 'pg'
import type { Draft } from '../../audit/draft.ts'
import { GENESIS, hashOf, leafIn } from '../../audit/leaf.ts'
import type { Work, WorkResult } from '../../audit/writer.ts'
import { messageOf } from '../../error-message.ts'
import type { Statement } from '../../statement.ts'
import { holding } from './assertions.ts'
import { claimed } from './claims.ts'
import { refusalOf } from './errors.ts'
import { BEGIN_CHANGES, BEGIN_DECISIONS } from './locks.ts'
import { insertOf, type LedgerRow } from './rows.ts'

/** The end of a chain. At `seq` 0 there is no row. */
export interface Link {
  readonly seq: number
  readonly hash: string
}

export const NO_ROWS: Link = { seq: 0, hash: GENESIS }

/** What a batch came to, once its transaction is committed. */
export interface Written {
  readonly results: readonly WorkResult[]
  readonly tip: Link
}

/**
 * Does a batch in one transaction, all but its commit: each unit whole or refused alone. Rejects where nothing of it
 * can be stored.
 */
export async function prepare(
  client: Client,
  stream: string,
  head: Link,
  batch: readonly Work[],
): Promise<Written> {
  await client.query(batch.some(changes) ? BEGIN_CHANGES : BEGIN_DECISIONS)
  const refused = new Map<Work, WorkResult>()
  for (const run of runsOf(batch)) {
    const left = await standing(client, run, refused)
    const [first] = left
    if (first && standsAlone(first)) await change(client, first, refused)
    else await claim(client, left, refused)
  }
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
  if (rows.length > 0) await append(client, stream, rows)
  return { results, tip }
}

/** The chain in the database is not the one that its writer has left there: nothing more is to be written to it. */
export class ChainBroken extends Error {}

async function append(client: Client, stream: string, rows: readonly LedgerRow[]): Promise<void> {
  try {
    await client.query(insertOf(rows))
  } catch (error) {
    if (!(error instanceof DatabaseError) || !NOT_THE_NEXT.test(error.code ?? '')) throw error
    throw new ChainBroken(`audit stream ${stream} was changed under its writer: ${error.message}`, {
      cause: error,
    })
  }
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

/** Asks the assertions of all of them at once, refuses those that are stale, and returns the others. */
async function standing(
  client: Client,
  run: readonly Work[],
  refused: Map<Work, WorkResult>,
): Promise<readonly Work[]> {
  const assertions = run.flatMap((work) => work.assertions)
  const holds = await holding(client, assertions)
  return run.filter((work) => {
    const broken = work.assertions.find((assertion) => !holds(assertion))
    if (broken) refused.set(work, { refused: 'stale', message: `"${broken.sql}" finds no row` })
    return !broken
  })
}

/** Makes the claims of all of them at once. */
async function claim(client: Client, run: readonly Work[], refused: Map<Work, WorkResult>): Promise<void> {
  const passes = await claimed(client, run)
  for (const work of run) {
    if (!passes(work)) refused.set(work, { refused: 'duplicate', message: 'what passes once has passed' })
  }
}

/** Does one unit under a savepoint, statement by statement. */
async function change(client: Client, work: Work, refused: Map<Work, WorkResult>): Promise<void> {
  await client.query('savepoint unit')
  const no = await firstRefused(client, work.statements)
  if (no) refused.set(work, no)
  await client.query(no ? 'rollback to unit' : 'release unit')
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
