import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { ExpectationsInForce } from '../operation/expected.ts'
import { evaluateExpectations } from './expected.ts'

interface ExpectationLogDependencies {
  readonly database: Database
  readonly log: Logger
  /** Takes the number of sentences that do not hold. */
  readonly count: (broken: number) => void
}

/**
 * Says which of what is expected does not hold now. A service that would not start for it could not be mended: it is
 * logged and counted, and the service goes on. Never rejects.
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
