import { z } from 'zod'
import { missingCapability } from '../db/ledger/authority/rule.ts'
import type { CallAuthority } from './arrival.ts'
import type { AccessToken, CapabilityDemand, Principal } from './facts.ts'
import type { CallPermit } from './permit.ts'
import type { Arrival, Plugin } from './plugin.ts'
import { Refusal } from './refusal.ts'

/** The options of the `capabilityGate` plugin file: none. The database holds the demands. */
export const capabilityOptions = z.strictObject({})

interface CapabilityNeeds<Target> {
  readonly holder: Principal
  readonly token: AccessToken | null
  readonly demand: CapabilityDemand
  readonly target: Target
  readonly authority: CallAuthority
}

/**
 * Makes the gate (spec §1, §2.3): the principal must hold the capability that the request demands, as the
 * database says now; nothing else makes a {@link CallPermit}. Refuses with `capability_missing` and
 * `required_capability`.
 */
export function capabilityGate<Target>(): Plugin<CapabilityNeeds<Target>, { granted: CallPermit<Target> }> {
  const admit = ({
    holder,
    token,
    demand,
    target,
    authority,
  }: CapabilityNeeds<Target>): { granted: CallPermit<Target> } => {
    demandHeld(holder, token, demand)
    // The one place that makes a permit: the line above has just proven it.
    return { granted: { kind: 'call', authority, principal: holder, demand, target } as CallPermit<Target> }
  }
  return { name: 'capability', admit, still: admit }
}

/** A body of so many bytes is read from any sender, and judged in the order of docs/protocol.md#llm-order. */
const SHORT_BODY = 65_536

interface BodyGateFacts extends Arrival {
  readonly principal: Principal
  readonly token: AccessToken | null
  readonly demand: CapabilityDemand
}

/**
 * Asks for the capability before more than {@link SHORT_BODY} of a body is read (docs/threats.md#a4). Leaves
 * a shorter body to later plugins, and so a caller who holds it. Refuses as {@link capabilityGate} does.
 */
export const capabilityBeforeBody: Plugin<BodyGateFacts, object> = {
  name: 'capability',
  admit: (facts) =>
    holdsDemanded(facts.principal, facts.token, facts.demand.demanded) ? NOTHING : readShort(facts),
}

const NOTHING = {}

async function readShort(facts: BodyGateFacts): Promise<object> {
  try {
    await facts.readBody(SHORT_BODY, facts)
  } catch (error) {
    const isLong = error instanceof Refusal && error.reason === 'body_too_large'
    if (isLong) demandHeld(facts.principal, facts.token, facts.demand)
  }
  // The reader of the body meets the same error, and reports it.
  return NOTHING
}

function demandHeld(holder: Principal, token: AccessToken | null, { demanded }: CapabilityDemand): void {
  const missed = missingCapability(demanded, holder.capabilities, token?.scope ?? null)
  if (missed === null) return
  throw capabilityMissing(
    missed,
    holder.capabilities.includes(missed)
      ? `The access token is narrowed to capabilities that do not include ${missed}.`
      : `${holder.id} does not hold the capability ${missed}. Ask an operator to grant it.`,
  )
}

export const holdsDemanded = (
  { capabilities }: Principal,
  token: AccessToken | null,
  demanded: readonly string[],
): boolean => missingCapability(demanded, capabilities, token?.scope ?? null) === null

/** Makes the refusal for a capability that is not held, with its challenge (RFC 6750 §3.1). */
export function capabilityMissing(required: string, message: string): Refusal {
  return new Refusal('capability_missing', {
    message,
    detail: { required_capability: required },
    headers: { 'www-authenticate': `DPoP error="insufficient_scope", scope="${required}"` },
  })
}

/** States no target: the operation finds its own object. */
export const NO_TARGET: Plugin<object, { target: null }> = { name: 'demand', admit: () => ({ target: null }) }

export function routeDemand(
  action: string,
  capability: string,
): Plugin<object, { demand: CapabilityDemand }> {
  const stated = { demand: { action, demanded: [capability] } }
  return { name: 'demand', admit: () => stated }
}
