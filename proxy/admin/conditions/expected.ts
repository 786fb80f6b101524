import type { HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { AdminContext } from '../operation/context.ts'
import type { ExpectationOutcome } from '../operation/expected.ts'
import type { InputSchemas, Operation, ParsedInput, RawInput } from '../operation/operation.ts'
import { type AuthorityEffect, readAuthority } from './known.ts'
import { resolveChanges } from './resolve.ts'
import { sentenceOf } from './sentence.ts'
import { evaluateSentences } from './truth.ts'

/**
 * Judges what is expected, before and after a change, and returns those that are false then or now, or become so: not
 * those that hold all the while. Reads the database, and stops nobody else's change meanwhile.
 */
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

/** What the row of a change says that was made against what is expected. */
export interface ForcedChangeDetail extends JsonObject {
  readonly reason: string
  readonly broken: readonly string[]
}

/** Null of changes that are about nobody: whatever refuses them does. */
async function resolveOrNull(
  context: AdminContext,
  changes: Parameters<typeof resolveChanges>[1],
): Promise<HypotheticalChanges | null> {
  try {
    return (await resolveChanges(context, changes)).laid
  } catch (error) {
    if (error instanceof Refusal && error.reason === 'body_unprocessable') return null
    throw error
  }
}

/**
 * Asks whether a change breaks what is expected. Returns null where it does not, and what its row is to say where its
 * caller forces it; refuses with `expectation_broken` otherwise. What was false before breaks nothing. Two changes at once
 * may break together what neither breaks alone.
 */
export async function checkExpectations<T extends InputSchemas, Output>(
  { rehearses, gives }: Operation<T, Output>,
  context: AdminContext,
  { input, given: { forced } }: { readonly input: ParsedInput<T>; readonly given: RawInput<T> },
): Promise<ForcedChangeDetail | null> {
  if (context.expected.sentences.length === 0 || (!rehearses && !gives)) return null
  const changes = (await rehearses?.(context, input)) ?? []
  const laid = changes.length > 0 ? await resolveOrNull(context, changes) : null
  const given = (await gives?.(context, input)) ?? null
  if (!laid && !given) return null
  const broken = (await evaluateExpectations(context, { laid, gives: given })).filter(
    ({ before, after }) => before && !after,
  )
  if (broken.length === 0) return null
  const sentences = broken.map(({ sentence }) => sentence)
  if (forced !== undefined) return { reason: forced, broken: sentences }
  throw new Refusal('expectation_broken', {
    message: `This would break what is expected: ${sentences.join('; ')}. Add ?force=true&reason=… to do it all the same.`,
    detail: { expectations: broken.map(({ line, sentence }) => ({ line, sentence })) },
  })
}
