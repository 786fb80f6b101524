import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { AdminContext, ExpectationOutcome, ExpectationsInForce } from '../operation/context.ts'
import { sentenceOf } from './sentence.ts'
import { type AuthorityEffect, evaluateSentences, readAuthority } from './truth.ts'

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

/** Judges the expectations before and after a change, and returns those that are false at either time. */
export async function evaluateExpectations(
  { database, expected }: Pick<AdminContext, 'database' | 'expected'>,
  change: AuthorityEffect | null,
): Promise<readonly ExpectationOutcome[]> {
  const { sentences } = expected
  // Proven by expectOptions: each is one.
  const read = sentences.flatMap(({ sentence }) => sentenceOf(sentence) ?? [])
  if (read.length === 0) return []
  const authority = await readAuthority(database, read)
  const before = await evaluateSentences(read, authority, expected)
  const after = change ? await evaluateSentences(read, authority, expected, change) : before
  return sentences
    .map((one, at) => ({ ...one, before: before[at] === true, after: after[at] === true }))
    .filter((one) => !one.before || !one.after)
}

/** The same of changes as a rehearsal has them. */
export const evaluateWithChanges = (
  context: Pick<AdminContext, 'database' | 'expected'>,
  laid: HypotheticalChanges,
): Promise<readonly ExpectationOutcome[]> => evaluateExpectations(context, { laid, gives: null })

/** The detail in the row of a change that broke expectations. */
export interface ForcedChangeDetail extends JsonObject {
  readonly reason: string
  readonly broken: readonly string[]
}

/**
 * Returns null if a change breaks no expectation, and the detail of its row if its caller forces it; refuses
 * with `expectation_broken` otherwise. One that was false before is not broken. Two changes at once may break
 * together what neither breaks alone.
 */
export async function checkExpectations(
  context: AdminContext,
  effect: AuthorityEffect,
  forced: string | undefined,
): Promise<ForcedChangeDetail | null> {
  const outcomes = await evaluateExpectations(context, effect)
  const broken = outcomes.filter(({ before, after }) => before && !after)
  if (broken.length === 0) return null
  if (forced === undefined) throw expectationBroken(broken)
  return { reason: forced, broken: broken.map(({ sentence }) => sentence) }
}

const expectationBroken = (broken: readonly ExpectationOutcome[]): Refusal =>
  new Refusal('expectation_broken', {
    message: `This would break an expectation: ${broken.map(({ sentence }) => sentence).join('; ')}. To make the change anyway, add ?force=true&reason=….`,
    detail: { expectations: broken.map(({ line, sentence }) => ({ line, sentence })) },
  })
