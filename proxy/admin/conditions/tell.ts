import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { ExpectationsInForce } from '../operation/context.ts'
import { evaluateExpectations } from './expected.ts'

interface ExpectationLogDependencies {
  readonly database: Database
  readonly log: Logger
  /** Takes the number of sentences that do not hold. */
  readonly count: (broken: number) => void
}

/**
 * Logs which expectations do not hold now. A service that refused to start for them could not be mended: it
 * logs, counts, and goes on. Never rejects.
 */
export async function logBrokenExpectations(
  expected: ExpectationsInForce,
  file: string,
  { database, log, count }: ExpectationLogDependencies,
): Promise<void> {
  try {
    const broken = await evaluateExpectations({ database, expected }, null)
    count(broken.length)
    for (const { line, sentence } of broken)
      log.error({ file, line, sentence }, `${file}:${line}: this expectation does not hold: ${sentence}`)
  } catch (error) {
    log.error({ err: error }, 'the expectations could not be judged')
  }
}
