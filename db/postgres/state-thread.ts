// The thread that computes a state of the ledger: with many principals its text takes longer than a turn of the loop
// may (docs/ledger.md#state).
import { type AnswerPieces, answerTo, type LedgerQuestion } from '../ledger/read/reader.ts'
import { placedPages } from './ledger/placed-rows.ts'
import { openReadConnections } from './reading.ts'

export interface StateTasks {
  readonly answer: (
    input: { readonly url: string; readonly question: LedgerQuestion },
    signal: AbortSignal,
  ) => AnswerPieces
}

export const openTasks = (): StateTasks => ({ answer })

async function* answer(
  { url, question }: Parameters<StateTasks['answer']>[0],
  signal: AbortSignal,
): AnswerPieces {
  const { kysely } = openReadConnections(url)
  try {
    yield* answerTo(kysely, question, signal, placedPages)
  } finally {
    await kysely.destroy()
  }
}
