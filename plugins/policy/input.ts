import type { AccessToken, PrincipalType, ToolCall } from '../facts.ts'
import type { CheckFacts } from '../operator-files/module.ts'
import type { Arrival } from '../plugin.ts'

/** The question that a policy is asked, as JSON (docs/policy.md). A member changes only with `version`. */
export interface PolicyInput {
  readonly version: 1
  readonly request_id: string
  /** RFC 3339, in UTC. */
  readonly time: string
  readonly principal: {
    readonly id: string
    readonly type: PrincipalType
    /** The capabilities in force for this call: narrowed by its access token if one came. */
    readonly capabilities: readonly string[]
  }
  readonly action: string
  /** The first capability that the call demands; null if it demands none. */
  readonly required_capability: string | null
  /** The JSON-RPC method; null for an LLM call. */
  readonly method: string | null
  readonly tool: string | null
  readonly resource: string | null
  readonly model: string | null
  readonly stream: boolean
  readonly arguments: Readonly<Record<string, unknown>> | null
  readonly arguments_sha256: string | null
  readonly proof: { readonly jkt: string } | null
  readonly remote_address: string
}

export type PolicyFacts = Arrival &
  CheckFacts & { readonly token?: AccessToken | null; readonly toolCall?: ToolCall }

export type ArgumentMode = 'values' | 'digests' | 'none'

/** The input of a call. Throws if a fact is missing: a policy must not be asked about half a call. */
export function policyInput(facts: PolicyFacts, mode: ArgumentMode): PolicyInput {
  const { demand, call, proof, toolCall } = facts
  return {
    version: 1,
    request_id: facts.id,
    time: new Date(facts.at).toISOString(),
    principal: principalOf(facts),
    action: demand.action,
    required_capability: demand.demanded[0] ?? null,
    method: toolCall?.method ?? null,
    tool: call.tool,
    resource: toolCall?.resource ?? null,
    model: call.model,
    stream: call.stream,
    arguments: mode === 'values' ? (toolCall?.arguments ?? null) : null,
    arguments_sha256: mode === 'none' ? null : (toolCall?.argumentsSha256?.() ?? null),
    proof: proof && { jkt: proof.jkt },
    remote_address: facts.remoteAddress,
  }
}

function principalOf({ granted: { principal }, token }: PolicyFacts): PolicyInput['principal'] {
  // Optional in the type only, because operators' modules do not know it: without it a narrowed token would
  // look wide.
  if (token === undefined) throw new Error('whether an access token came is not known here')
  const { id, type } = principal
  const scope = token?.scope
  const capabilities = scope
    ? principal.capabilities.filter((held) => scope.includes(held))
    : principal.capabilities
  return { id, type, capabilities }
}
