import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { Expected } from '../operation/expected.ts'
import { judgedBy } from './expected.ts'

interface Sources {
  readonly database: Database
  readonly log: Logger
  /** Takes the number of sentences that do not hold. */
  readonly count: (broken: number) => void
}

/**
 * Says which of what is expected does not hold now. A service that would not start for it could not be mended: it is
 * logged and counted, and the service goes on. Never rejects.
 */
export async function tellBroken(
  expected: Expected,
  file: string,
  { database, log, count }: Sources,
): Promise<void> {
  try {
    const broken = await judgedBy({ database, expected }, null)
    count(broken.length)
    for (const { line, sentence } of broken)
      log.error({ file, line, sentence }, `${file}:${line}: what is expected does not hold: ${sentence}`)
  } catch (error) {
    log.error({ err: error }, 'what is expected could not be judged')
  }
}
