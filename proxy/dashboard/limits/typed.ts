import { parseUsd } from '../../../plugins/prices/usd.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import type { OPERATIONS } from '../../admin/http/operations.ts'
import type { RawInput } from '../../admin/operation/operation.ts'
import { INSTANT_FORM, instantOf } from '../activity/asked.ts'
import type { FormSubmission } from '../frame/acting.ts'
import type { ShownLimit } from './words.ts'

type LimitInput = RawInput<typeof OPERATIONS.limits.create.takes>['body']

/** Reads the field `amount` in the unit of the measure: dollars with two places or more are micro-USD. */
export function typedAmount({ form }: FormSubmission, measure: string): number {
  const typed = (form.get('amount') ?? '').trim()
  const isCost = measure === 'cost'
  const amount = isCost ? parseUsd(typed) : /^\d{1,16}$/.test(typed) ? Number(typed) : null
  if (amount !== null) return amount
  const message = isCost
    ? 'must be an amount in USD, such as 25 or 25.50'
    : 'must be a whole number, such as 1000'
  throw unprocessableBody([{ field: 'amount', message }])
}

/** Reads the field `until` as RFC 3339. */
export function typedInstant({ form }: FormSubmission): string {
  const until = instantOf(form.get('until') ?? '')
  if (until === null) throw unprocessableBody([{ field: 'until', message: INSTANT_FORM }])
  return new Date(until).toISOString()
}

/** Reads a line of patterns with commas between; undefined: there are none. */
function typedPatterns({ form }: FormSubmission, name: string): string[] | undefined {
  const patterns = (form.get(name) ?? '').split(',').flatMap((one) => one.trim() || [])
  return patterns.length === 0 ? undefined : patterns
}

function typedScope(facts: FormSubmission): LimitInput['for'] {
  const holding = facts.form.get('holding')?.trim()
  const lists = ['principals', 'models', 'tools'].map((name) => [name, typedPatterns(facts, name)] as const)
  return {
    ...Object.fromEntries(lists.filter(([, patterns]) => patterns !== undefined)),
    ...(holding && { holding }),
  }
}

/** Reads the form of a new limit. Refuses an amount that is none; the rest is parsed by the operation. */
export function typedLimit(facts: FormSubmission): LimitInput {
  const { form } = facts
  // Parsed by the operation.
  const measure = (form.get('measure') ?? '') as ShownLimit['measure']
  const per = form.get('per') as ShownLimit['per']
  const isSet = (name: string): boolean => form.get(name) === 'true'
  return {
    name: (form.get('name') ?? '').trim(),
    ...{ for: typedScope(facts), measure, amount: typedAmount(facts, measure) },
    // Calls at once have no time: the choice says nothing then.
    ...(per && measure !== 'concurrent' && { per }),
    ...{ each: isSet('each'), strict: isSet('strict'), show: isSet('show') },
    on: form.get('on') === 'alert' ? 'alert' : 'refuse',
  }
}
