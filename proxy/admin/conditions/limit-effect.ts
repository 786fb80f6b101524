import { z } from 'zod'
import type { ChangedLimit } from '../../../db/ledger/rehearsal/limit-changes.ts'
import type { LimitEffect, LimitGroup } from '../../../db/ledger/rehearsal/limit-tally.ts'
import type { DecisionWindow } from '../../../db/ledger/rehearsal/rehearse.ts'
import { fixedMembers } from '../operation/limit-terms.ts'
import { instant } from '../operation/shapes.ts'

const count = z.int().min(0)
const firstCall = z.strictObject({ at: instant, request_id: z.string().nullable() })

export const limitEffectShape = z
  .strictObject({
    limit_id: z.string().nullable().meta({ description: 'Null: a new one.' }),
    name: z.string(),
    measure: fixedMembers.measure,
    summary: z.string().meta({ description: 'The effect in a sentence.' }),
    calls: count.meta({ description: 'The calls that it is for.' }),
    refused: count,
    allowed: count.meta({ description: 'Calls that it refused, and would not with the change.' }),
    undecidable: count,
    principals: count.meta({ description: 'The principals of the refused calls.' }),
    first_refused: firstCall.nullable(),
    groups: z
      .array(
        z.strictObject({
          principal_id: z.string(),
          principal_ref: z
            .string()
            .exactOptional()
            .meta({ description: 'For a user: its name in the ledger.' }),
          calls: count,
          refused: count,
          first_refused: firstCall.nullable(),
          highest: count.meta({
            description: 'The most in one window; of a rate or of calls at once, that its meter is at.',
          }),
        }),
      )
      .meta({ description: 'Most refused first, at most 500.' }),
    reached: z
      .array(z.strictObject({ percent: z.int(), times: count, first: firstCall }))
      .meta({ description: 'Parts of the amount that are reached: of each meter once in a window.' }),
    truncated: z.boolean(),
  })
  .meta({ id: 'LimitEffect' })

type LimitEffectView = z.output<typeof limitEffectShape>

interface EffectDependencies {
  readonly window: DecisionWindow
  /** ms since the epoch. */
  readonly at: number
  /** The ids of users by their names in the ledger. */
  readonly names: ReadonlyMap<string, string>
}

/** Shows what a changed limit would have done. */
export function limitEffectView(
  effect: LimitEffect,
  change: ChangedLimit,
  { window, at, names }: EffectDependencies,
): LimitEffectView {
  const { groups, reached, first_refused: first, ...counts } = effect
  const named = ({ principal_id: ref, first_refused: own, ...one }: LimitGroup) => {
    const id = names.get(ref)
    const who = id === undefined ? { principal_id: ref } : { principal_id: id, principal_ref: ref }
    return { ...one, ...who, first_refused: own && { ...own } }
  }
  return {
    ...{
      limit_id: change.id,
      measure: change.terms.measure,
      ...counts,
      first_refused: first && { ...first },
    },
    summary: effectText(effect, change, window, at),
    groups: groups.map(named),
    reached: reached.map((one) => ({ ...one, first: { ...one.first } })),
  }
}

const DAY_MS = 86_400_000
/** A window that ends so near to now ends now. ms. */
const NOW_MS = 60_000

function windowText({ since, until }: DecisionWindow, at: number): string {
  const [from, to] = [Date.parse(since), Date.parse(until)]
  const days = (to - from) / DAY_MS
  if (Math.abs(at - to) < NOW_MS && Number.isInteger(days))
    return `in the last ${days === 1 ? 'day' : `${days} days`}`
  return `from ${since} to ${until}`
}

const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'long', timeZone: 'UTC' })
const DAY_OF_YEAR = new Intl.DateTimeFormat('en-GB', {
  ...{ day: 'numeric', month: 'long', year: 'numeric' },
  timeZone: 'UTC',
})

/** The UTC day of an instant: `3 November`, with the year if it is not that of now. */
const dayText = (instantText: string, at: number): string => {
  const when = new Date(instantText)
  const isOfNow = when.getUTCFullYear() === new Date(at).getUTCFullYear()
  return (isOfNow ? DAY : DAY_OF_YEAR).format(when)
}

const many = (number: number, noun: string): string =>
  `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`

/** Says in words what a changed limit would have done: `in the last 30 days this would have refused 14 calls …`. */
function effectText(
  effect: LimitEffect,
  { terms, isRemoved }: ChangedLimit,
  window: DecisionWindow,
  at: number,
): string {
  const { refused, allowed, undecidable, calls, principals, first_refused: first, reached } = effect
  const when = windowText(window, at)
  const day = (text: string) => dayText(text, at)
  const parts = reached.map(({ percent, first: { at: by } }) => `${percent} % on ${day(by)}`)
  const alerts = parts.length > 0 ? `, and first reached ${parts.join(', ')}` : ''
  const own =
    isRemoved && first === null
      ? `${when} this limit would have refused nothing`
      : first === null
        ? `${when} this would have refused none of ${many(calls, 'call')}${alerts}`
        : `${when} this would have refused ${many(refused, 'call')} of ${many(principals, 'principal')}, first on ${day(first.at)}`
  return [
    own,
    ...(allowed > 0 ? [`${many(allowed, 'call')} that it refused would have passed`] : []),
    ...(undecidable > 0 ? [`of ${many(undecidable, 'call')} nobody can tell`] : []),
    ...(terms.on === 'alert' && !isRemoved ? ['it only alerts'] : []),
  ].join('; ')
}
