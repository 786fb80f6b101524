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
    const [first] = run
    if (first && standsAlone(first)) await change(client, first, refused)
    else await decide(client, run, refused)
  }
  const rows: Row[] = []
  let tip = head
  const results = batch.map((work): WorkResult => {
    const no = refused.get(work)
    if (no) return no
    const sealed = work.drafts.map((draft) => {
      const row = rowOf(draft, tip)
      rows.push(row)
      tip = row
      return { stream, seq: row.seq, hash: row.hash }
    })
    return { sealed }
  })
  if (rows.length > 0) await append(client, stream, rows)
  return { results, tip }
}

/** The chain in the database is not the one that its writer has left there: nothing more is to be written to it. */
export class ChainBroken extends Error {}

async function append(client: Client, stream: string, rows: readonly Row[]): Promise<void> {
  try {
    await client.query(insertOf(stream, rows))
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

/** Asks the assertions of all of them at once, and makes their claims at once. */
async function decide(client: Client, run: readonly Work[], refused: Map<Work, WorkResult>): Promise<void> {
  const holds = await holding(
    client,
    run.flatMap(({ assertions }) => assertions),
  )
  for (const work of run) {
    const broken = work.assertions.find((assertion) => !holds(assertion))
    if (broken) refused.set(work, { refused: 'stale', message: `"${broken.sql}" finds no row` })
  }
  const left = run.filter((work) => !refused.has(work))
  const passes = await claimed(client, left)
  for (const work of left) {
    if (!passes(work)) refused.set(work, { refused: 'duplicate', message: 'what passes once has passed' })
  }
}

/** Does one unit under a savepoint, statement by statement. */
async function change(client: Client, work: Work, refused: Map<Work, WorkResult>): Promise<void> {
  const { assertions, statements } = work
  const holds = await holding(client, assertions)
  const broken = assertions.find((assertion) => !holds(assertion))
  if (broken) return void refused.set(work, { refused: 'stale', message: `"${broken.sql}" finds no row` })
  await client.query('savepoint unit')
  const no = await firstRefused(client, statements)
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

interface Row extends Link {
  readonly draft: Draft
  readonly parent: string
  readonly leaf: string
}

function rowOf(draft: Draft, parent: Link): Row {
  const seq = parent.seq + 1
  const leaf = leafIn(draft, parent.hash, seq)
  return { draft, seq, parent: parent.hash, hash: hashOf(leaf), leaf }
}

function insertOf(stream: string, rows: readonly Row[]) {
  const column = <Value>(read: (row: Row) => Value): Value[] => rows.map(read)
  return {
    name: 'audit_rows',
    text: INSERT,
    values: [
      stream,
      column(({ seq }) => seq),
      column(({ draft }) => draft.recorded_at),
      column(({ draft }) => draft.request_id),
      column(({ draft }) => draft.principal_id),
      column(({ draft }) => draft.action),
      column(({ draft }) => draft.status),
      column(({ parent }) => parent),
      column(({ hash }) => hash),
      column(({ leaf }) => leaf),
    ],
  }
}

const INSERT = `insert into audit_rows
  (stream, seq, recorded_at, request_id, principal_id, action, status, prev_hash, row_hash, leaf)
select $1, added.* from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::text[], $10::text[]) as added`
