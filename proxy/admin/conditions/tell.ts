import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { ExpectationsInForce } from '../operation/context.ts'
import { evaluateExpectations } from './expected.ts'

interface ExpectationLogDependencies {
  readonly database: Database
  readonly log: Logger
}

/**
 * Logs which expectations do not hold now. A service that refused to start could not be mended. Never
 * rejects.
 */
export async function logBrokenExpectations(
  expected: ExpectationsInForce,
  file: string,
  { database, log }: ExpectationLogDependencies,
): Promise<void> {
  try {
    const broken = await evaluateExpectations({ database, expected }, null)
    for (const { line, sentence } of broken)
      log.error({ file, line, sentence }, `${file}:${line}: this expectation does not hold: ${sentence}`)
  } catch (error) {
    log.error({ err: error }, 'the expectations could not be judged')
  }
}

/** Makes the function that counts the expectations which do not hold now. It reads once for all who ask at once. */
export function brokenExpectationsOf(
  database: Database,
  expected: () => ExpectationsInForce,
): () => Promise<number> {
  let counting: Promise<number> | null = null
  const count = async (): Promise<number> =>
    (await evaluateExpectations({ database, expected: expected() }, null)).length
  return () => {
    counting ??= count().finally(() => {
      counting = null
    })
    return counting
  }
}
