import { z } from 'zod'
import type { PrincipalUsage } from '../../../db/ledger/rehearsal/usage.ts'
import { instantInput, windowOf } from '../conditions/run.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import { readOperation } from '../operation/operation.ts'
import { capabilityToken, idParams, instant } from '../operation/shapes.ts'
import { principalOf } from '../principals/view.ts'

const since = instantInput.exactOptional().meta({ description: 'Inclusive. Default: 30 days ago.' })

const tokens = z.array(capabilityToken)
const count = z.int().min(0)

const used = z.strictObject({
  since: instant,
  decisions: count,
  capabilities: z.array(
    z.strictObject({
      capability: capabilityToken,
      held: z.boolean(),
      granted_at: instant.nullable().meta({
        description: 'When it was granted last; null: before `since`, or it is not held.',
      }),
      allowed: count,
      denied: count,
      last_allowed_at: instant.nullable(),
      last_denied_at: instant.nullable(),
      tools: z.array(z.string()),
      models: z.array(z.string()),
    }),
  ),
  unused: tokens.meta({ description: 'Held now, and not required by any allowed call.' }),
  missing: tokens.meta({ description: 'Missing in refused calls, and not held now.' }),
  suggested: tokens.meta({
    description: 'The smallest set that would have allowed every call that was allowed.',
  }),
})

export type CapabilityUsage = z.output<typeof used>

/**
 * GET /v1/admin/{agents,users,workloads}/{id}/usage: which of its capabilities it has used
 * (docs/rehearsal.md#usage).
 */
export const getCapabilityUsage = (kind: PrincipalKind) =>
  readOperation({
    name: `get${kind.noun}Usage`,
    summary: `Says which capabilities the calls of the ${kind.type} required, and which it holds but does not use.`,
    takes: { params: idParams, query: z.strictObject({ since }) },
    output: used,
    reasons: ['not_found', 'overloaded'],
    run: async (context, { params: { id }, query }, { actor, at, hangup }) => {
      const { principal_ref: principal, capabilities: held } = await principalOf(context, kind, id)
      const window = windowOf(at, query.since)
      const task = {
        kind: 'usage',
        principal,
        wanted: { ...window, principals: [principal], callsAlone: true },
      } as const
      const found = await context.rehearsalPlaces.run('usage', actor.id, () =>
        context.walkCalls(task, hangup.signal),
      )
      return { value: { since: window.since, ...usageView(found, held) } }
    },
  })

function usageView(
  { decisions, capabilities, undemanding, granted }: PrincipalUsage,
  held: readonly string[],
) {
  const holding = (capability: string) => {
    const isHeld = held.includes(capability)
    return { held: isHeld, granted_at: isHeld ? (granted.get(capability) ?? null) : null }
  }
  const wanted = new Map(capabilities.map((one) => [one.capability, one]))
  const needed = capabilities.filter(({ allowed }) => allowed > 0).map(({ capability }) => capability)
  return {
    decisions,
    capabilities: [
      ...capabilities.map((one) => ({
        ...one,
        tools: [...one.tools],
        models: [...one.models],
        ...holding(one.capability),
      })),
      ...held.filter((one) => !wanted.has(one)).map((one) => ({ ...neverUsed(one), ...holding(one) })),
    ],
    unused: held.filter((one) => !needed.includes(one)),
    missing: capabilities
      .filter(({ capability, denied }) => denied > 0 && !held.includes(capability))
      .map(({ capability }) => capability),
    // Calls that demand nothing need any set: the present one.
    suggested: needed.length === 0 && undemanding > 0 ? [...held] : needed.toSorted(),
  }
}

const neverUsed = (capability: string) => ({
  ...{ capability, allowed: 0, denied: 0, last_allowed_at: null, last_denied_at: null },
  tools: [],
  models: [],
})
