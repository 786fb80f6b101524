import { z } from 'zod'
import { isCapability } from '../../../db/capabilities.ts'
import {
  type CallLimit,
  isRatePeriod,
  type LimitOverride,
  type LimitScope,
  type LimitTerms,
} from '../../../db/limits/limit.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import { instant } from './shapes.ts'

const MAX_PATTERNS = 32

const pattern = z
  .string()
  .regex(/^[\x21-\x7e]{1,256}$/, 'must be 1 to 256 visible characters; * stands for any')
  .meta({ description: 'A name; `*` stands for any characters.' })

const patterns = z
  .array(pattern)
  .min(1, 'must name at least one')
  .max(MAX_PATTERNS, `must name at most ${MAX_PATTERNS}`)

const limitScope = z
  .strictObject({
    principals: patterns
      .exactOptional()
      .meta({ description: 'Ids of principals; `acme::*` is an organisation.' }),
    holding: z
      .string()
      .refine(isCapability, 'must be a capability')
      .exactOptional()
      .meta({ description: 'A capability that the principal holds.' }),
    types: z
      .array(z.enum(['agent', 'user', 'workload']))
      .min(1)
      .exactOptional(),
    models: patterns.exactOptional().meta({ description: '`provider/model` as routed.' }),
    tools: patterns.exactOptional().meta({ description: '`server.tool`.' }),
  })
  .refine(
    ({ models, tools }) => !models || !tools,
    'models and tools never fit the same call: make two limits',
  )
  .meta({ description: 'The calls that it is for: all that is stated must fit. `{}`: every call.' })

/** Units: 10^15 micro-USD are a billion USD. The arithmetic of meters stays exact below it. */
const MAX_AMOUNT = 1e15
/** A steady rate is counted in units × ms of its period. */
const MAX_RATE = 1e10

const amount = z.int().min(0, 'must be 0 or more').max(MAX_AMOUNT, `must be at most ${MAX_AMOUNT}`)

const limitName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9._-]{0,62}$/,
    'must be 1 to 63 of a-z, 0-9, dot, underscore and hyphen, a letter or digit first',
  )

/** The members that may be changed afterwards. */
export const changeableMembers = {
  name: limitName,
  amount: amount.meta({ description: 'Micro-USD, tokens or calls.' }),
  burst: z.int().min(1).max(MAX_RATE).meta({ description: 'The most at once, per second or minute alone.' }),
  strict: z
    .boolean()
    .meta({ description: 'The amount is never passed: what may be used at the most is held.' }),
  on: z.enum(['refuse', 'alert']).meta({ description: '`alert`: it counts, and never refuses.' }),
  show: z.boolean().meta({ description: 'Its callers may see it.' }),
}

export const fixedMembers = {
  for: limitScope,
  each: z.boolean().meta({ description: 'True: each principal has the amount; false: all together.' }),
  measure: z.enum(['cost', 'tokens', 'calls', 'concurrent']),
  per: z
    .enum(['second', 'minute', 'hour', 'day', 'week', 'month', 'ever'])
    .meta({ description: 'Absent for `concurrent` alone. Windows are of the UTC calendar.' }),
}

/** Says why terms contradict themselves, by their member; null: they do not. */
function termsFault({ measure, per, burst, strict, amount: most }: LimitTerms): [string, string] | null {
  const isRate = isRatePeriod(per)
  if (measure === 'concurrent') {
    if (per !== undefined) return ['per', 'must be left out: concurrent counts calls that are under way']
  } else if (per === undefined) return ['per', 'must say for which time the amount is']
  if (measure === 'cost' && isRate) return ['per', 'must be an hour or longer for cost']
  if (burst !== undefined && !isRate) return ['burst', 'is of a second or a minute alone']
  if (isRate && most > MAX_RATE) return ['amount', `must be at most ${MAX_RATE} for a second or a minute`]
  if (isRate && most === 0) return ['amount', 'must be 1 or more for a second or a minute']
  if (strict && measure !== 'cost' && measure !== 'tokens') return ['strict', 'is of cost and tokens alone']
  return null
}

/** Has only the members that are stated: rows and the database have none that are undefined. */
const statedScope = (scope: z.output<typeof limitScope>): LimitScope =>
  Object.fromEntries(Object.entries(scope).filter(([, value]) => value !== undefined))

const { name, amount: amountMember, burst, strict, on, show } = changeableMembers

/** A new limit, as its maker states it. */
export const newLimitBody = z.strictObject({
  name,
  ...fixedMembers,
  for: fixedMembers.for.default({}),
  each: fixedMembers.each.default(false),
  per: fixedMembers.per.exactOptional(),
  amount: amountMember,
  burst: burst.exactOptional(),
  strict: strict.default(false),
  on: on.default('refuse'),
  show: show.default(true),
})

/** The members that a change of a limit may state. */
export const changedLimitBody = z.strictObject(changeableMembers).partial()

export const overrideBody = z.strictObject({
  amount: amountMember,
  until: instant,
  reason: z.string().trim().min(1, 'must say why').max(512, 'must be at most 512 characters'),
})

/** A change of a limit, as a rehearsal has it: a new one, or one with an id. */
export type LimitChangeInput =
  | z.output<typeof newLimitBody>
  | ({ readonly id: string } & z.output<typeof changedLimitBody>)
  | { readonly id: string; readonly remove: true }
  | { readonly id: string; readonly override: z.output<typeof overrideBody> | null }

const limitId = z.string().min(1).max(64).meta({ description: 'The id of a limit that there is.' })

const LIMIT_CHANGES = {
  remove: z.strictObject({ id: limitId, remove: z.literal(true) }),
  override: z.strictObject({ id: limitId, override: overrideBody.nullable() }),
  change: z
    .strictObject({ id: limitId, ...changeableMembers })
    .partial()
    .required({ id: true }),
  create: newLimitBody,
}

/** The form that a change has by its members: faults are those of that one. */
function limitFormOf(members: object): z.ZodType<LimitChangeInput> {
  if (!('id' in members)) return LIMIT_CHANGES.create
  if ('remove' in members) return LIMIT_CHANGES.remove
  return 'override' in members ? LIMIT_CHANGES.override : LIMIT_CHANGES.change
}

/** Reads a change of a limit by the shapes of the operations that make it. */
export const limitChange = z.looseObject({}).transform((members, context): LimitChangeInput => {
  const read = limitFormOf(members).safeParse(members)
  if (read.success) return read.data
  for (const { path, message } of read.error.issues) context.addIssue({ code: 'custom', path, message })
  return z.NEVER
})

/** The name of a limit, and its terms. */
type NamedTerms = Pick<CallLimit, 'name'> & { readonly terms: LimitTerms }

/** Reads a new limit. Refuses with `body_unprocessable` if it contradicts itself. */
export function newTerms({ name: named, ...body }: z.output<typeof newLimitBody>): NamedTerms {
  // Proven by its shape: the members that are optional there are left out here.
  return { name: named, terms: checkTerms({ ...body, for: statedScope(body.for) } as LimitTerms) }
}

/** Reads a change of a limit. Refuses as {@link newTerms} does. */
export function changedTerms(
  found: CallLimit,
  { name: named = found.name, ...body }: z.output<typeof changedLimitBody>,
): NamedTerms {
  const stated = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined))
  return { name: named, terms: checkTerms({ ...termsOf(found), ...stated }) }
}

/** Reads an override. Refuses with `body_unprocessable` if it has ended. `at`: ms since the epoch. */
export function overrideOf(body: z.output<typeof overrideBody>, at: number): LimitOverride {
  if (Date.parse(body.until) <= at)
    throw unprocessableBody([{ field: 'until', message: 'must be in the future' }])
  return { ...body, until: timestamp(Date.parse(body.until)) }
}

function checkTerms(terms: LimitTerms): LimitTerms {
  const fault = termsFault(terms)
  if (fault) throw unprocessableBody([{ field: fault[0], message: fault[1] }])
  return terms
}

/** The terms of a limit, without what else is known of it. */
export const termsOf = (limit: CallLimit): LimitTerms => {
  const { for: scope, each, measure, amount: most, per, burst: atOnce } = limit
  const { strict: isStrict, on: acts, show: isShown } = limit
  return {
    ...{ for: scope, each, measure, amount: most, strict: isStrict, on: acts, show: isShown },
    ...(per !== undefined && { per }),
    ...(atOnce !== undefined && { burst: atOnce }),
  }
}
