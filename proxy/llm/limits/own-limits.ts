import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import { type CallLimit, meterAt, resetAt } from '../../../db/limits/limit.ts'
import type { PresentRules } from '../../../db/limits/present-rules.ts'
import { type OwnUsageReading, readOwnUsage } from '../../../db/limits/usage.ts'
import { timestamp } from '../../../db/support/statement.ts'
import type { Principal } from '../../../plugins/facts.ts'
import { ApplyingLimits } from '../../../plugins/limits/applying.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { KNOWN_CALLER_REASONS, type RouteDoc } from '../../http/doc.ts'
import { jsonReply, type Reply } from '../../http/reply.ts'

const instant = z.iso.datetime()

const ownLimit = z
  .strictObject({
    name: z.string(),
    measure: z.enum(['cost', 'tokens', 'calls', 'concurrent']),
    per: z.enum(['second', 'minute', 'hour', 'day', 'week', 'month', 'ever']).exactOptional(),
    amount: z.int().meta({ description: 'Micro-USD, tokens or calls; of a steady rate, in each period.' }),
    burst: z.int().exactOptional().meta({ description: 'The most at once of a steady rate.' }),
    each: z.boolean().meta({ description: 'True: it is yours alone; false: others use it too.' }),
    on: z.enum(['refuse', 'alert']),
    models: z.array(z.string()).exactOptional().meta({ description: 'The models that it is for.' }),
    tools: z.array(z.string()).exactOptional().meta({ description: 'The tools that it is for.' }),
    used: z.int().meta({ description: 'With what calls under way hold.' }),
    left: z.int(),
    resets_at: instant.nullable().meta({ description: 'Null: it has no window.' }),
  })
  .meta({ id: 'OwnLimit' })

export type OwnLimit = z.output<typeof ownLimit>

interface OwnLimitDependencies {
  readonly database: Pick<Database, 'kysely'>
  readonly rules: Pick<PresentRules, 'now'>
}

type KnownCaller = Arrival & { readonly principal: Principal }

/**
 * GET /v1/limits: those that apply to calls of its caller and show themselves, and what is left of each. A token that
 * was narrowed changes nothing: limits are of what its principal holds.
 */
export function ownLimitsHandler({ database, rules: present }: OwnLimitDependencies) {
  let applying: ApplyingLimits | null = null
  return async ({ principal, at }: KnownCaller): Promise<Reply> => {
    const rules = await present.now()
    if (applying?.rules !== rules) applying = new ApplyingLimits(rules)
    const shown = applying.ofPrincipal(principal).filter(({ show }) => show)
    const read = await readOwnUsage(database, shown, { ref: principal.ref, at })
    return jsonReply(200, { limits: read.map((one) => ownView(one, at)) })
  }
}

function ownView({ limit, meter }: OwnUsageReading<CallLimit>, at: number): OwnLimit {
  const { name, measure, per, burst, each, on } = limit
  const { models, tools } = limit.for
  const reset = resetAt(limit, at)
  return {
    ...{ name, measure, ...(per !== undefined && { per }) },
    amount: meterAt(limit, at).refill?.rate ?? meter.amount,
    ...(burst !== undefined && { burst }),
    ...{ each, on },
    ...(models && { models: [...models] }),
    ...(tools && { tools: [...tools] }),
    ...{ used: meter.used, left: Math.max(0, meter.amount - meter.used) },
    resets_at: reset === null ? null : timestamp(reset),
  }
}

export const OWN_LIMITS: RouteDoc = {
  name: 'listOwnLimits',
  summary: 'Lists the limits of your calls, and what is left of each.',
  caller: 'principal',
  answers: {
    200: {
      description: 'The limits that apply to your calls and show themselves.',
      content: [{ schema: z.strictObject({ limits: z.array(ownLimit) }) }],
    },
  },
  reasons: KNOWN_CALLER_REASONS,
}
