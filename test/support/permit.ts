import { type CallAuthority, OWN_AUTHORITY } from '../../plugins/call-authority.ts'
import { capabilityGate } from '../../plugins/capability.ts'
import type { CapabilityDemand, Principal } from '../../plugins/facts.ts'
import type { CallPermit, CatalogPermit, OperatorPermit } from '../../plugins/permit.ts'

/** An agent that holds these capabilities. */
export const holderOf = (...capabilities: readonly string[]): Principal => ({
  id: 'acme::bot',
  ref: 'acme::bot',
  type: 'agent',
  capabilities,
  dpopJkt: null,
  previousDpopJkt: null,
  inGrace: false,
  revision: 1,
})

/** A grant as the real gate makes it, to a principal that holds just what is demanded. */
export function grantOf<Target = null>(
  demand: CapabilityDemand,
  target: Target,
  authority: CallAuthority = OWN_AUTHORITY,
): CallPermit<Target> {
  const facts = { holder: holderOf(...demand.demanded), token: null, demand, target, authority }
  const given = capabilityGate<Target>().admit(facts)
  if (given instanceof Promise) throw new Error('the gate answered later')
  return given.granted
}

/** A grant of a tool's call, for tests of what stands behind the gate. */
export const TOOL_CALL = grantOf({ action: 'mcp_tools_call', demanded: ['mcp.tools.call'] }, null)

/**
 * A reading of an MCP server, for tests of the client alone: the service makes one in `pinning/inspect.ts`
 * only.
 */
export const READING = { kind: 'reading', authority: OWN_AUTHORITY, resourceId: 'mcpr_1' } as OperatorPermit

/** A reading of a provider's models, for tests of the client alone. */
export const CATALOGUE = { kind: 'catalogue', authority: OWN_AUTHORITY, provider: 'test' } as CatalogPermit
