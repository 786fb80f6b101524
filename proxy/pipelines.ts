import { capability, demand } from '../plugins/capability.ts'
import { type DpopSources, dpop } from '../plugins/dpop/dpop.ts'
import { type ClaimSources, singleUse } from '../plugins/dpop/single-use.ts'
import type { AccessToken, Principal, Proof } from '../plugins/facts.ts'
import { type JsonBody, jsonBody } from '../plugins/json-body/json-body.ts'
import type { Granted } from '../plugins/permit.ts'
import { stillPinned } from '../plugins/pin/pin.ts'
import { type Arrival, Pipeline, type Plugin } from '../plugins/plugin.ts'
import { Refusal } from '../plugins/refusal.ts'
import { type Actor, localOperator, stillOperator } from '../plugins/secrets/admin-secret.ts'
import { tokenProof } from './auth/token-proof.ts'
import { tokenRequest } from './auth/token-request.ts'
import type { Configuration } from './configuration.ts'
import { type LlmTarget, llmCall } from './llm/call.ts'
import type { Endpoint } from './llm/dialects/registry.ts'
import { mcpState, mcpTool, methodGate } from './mcp/gate/checks.ts'
import { demandNow } from './mcp/gate/demand-now.ts'
import { mcpOrigin, mcpResourcePath, type ResourcePath } from './mcp/gate/endpoint.ts'
import { type McpTarget, mcpTarget, reachedBy } from './mcp/gate/target.ts'
import type { Mcp } from './mcp/mcp.ts'
import { type McpMessage, mcpMessage, mcpPeek, type Peeked } from './mcp/protocol/message.ts'

const MIB = 1024 * 1024
/** Prompts carry pictures and long histories (docs/protocol.md#llm-order). */
const LLM_BODY_LIMIT = 32 * MIB
const BODY_LIMIT = MIB
/** Arguments of a tool may carry a file. */
const MCP_BODY_LIMIT = 8 * MIB

export interface PipelineSources {
  readonly configuration: Configuration
  /** Who a certificate is, by its digest or, where it was enrolled so, by its SPIFFE id. */
  readonly pin: Plugin<Arrival, { principal: Principal }>
  /** Made once: it remembers which keys held. */
  readonly apiKey: Plugin<Arrival & { principal: Principal }, object>
  /** Made once: its memory of failures must outlive a configuration. */
  readonly adminSecret: Plugin<Arrival, { actor: Actor }>
  /** What proofs and tokens are checked with; the mode comes from the configuration. */
  readonly constrained: Omit<DpopSources, 'mode' | 'noDowngrade'>
  readonly claims: ClaimSources
  /** Made once: sessions and open questions outlive a configuration. */
  readonly mcp: Pick<Mcp, 'registry' | 'sessions' | 'serverRequests' | 'states'>
}

/** What is known of an MCP request once its message was read. */
type McpRead = Arrival &
  JsonBody &
  ResourcePath & {
    readonly principal: Principal
    readonly proof: Proof | null
    readonly token: AccessToken | null
    readonly peeked: Peeked
    readonly message: McpMessage
  }

/** What was granted, and to whom. */
interface Gated<Target> extends Arrival {
  readonly token: AccessToken | null
  readonly granted: Granted<Target>
}

/** Every question that is asked at each kind of door, in its order. The first refusal ends it. */
export function pipelines({
  configuration,
  pin,
  apiKey,
  adminSecret,
  constrained,
  claims,
  mcp,
}: PipelineSources) {
  const { dpopMode: mode, noDowngrade, checks, mcp: mcpOptions } = configuration
  const { nonces, baseUrls } = constrained
  const proof = dpop({ ...constrained, mode, noDowngrade })
  const anyone = Pipeline.start()
  const operator = anyone.pass(adminSecret)
  const local = anyone.pass(localOperator)
  const sameOrigin = mcpOrigin(baseUrls, mcpOptions.allowed_origins)
  const adminBody = jsonBody({ limit: BODY_LIMIT, empty: true })

  const again = stillPinned(pin)
  const llmGate = capability<LlmTarget>()
  const mcpGate = capability<McpTarget>()

  /** Whether `gates` would let the same caller through at a later instant. */
  const stillAdmitted =
    <Facts extends Arrival>(gates: (facts: Facts, holder: Principal) => unknown) =>
    async (facts: Facts, at: number): Promise<boolean> => {
      try {
        const { holder } = await again.admit({ ...facts, at })
        await gates(facts, holder)
        return true
      } catch (error) {
        if (error instanceof Refusal) return false
        throw error
      }
    }

  const mcpMethod = methodGate(mcpOptions.enforce_tools_call)

  /**
   * docs/protocol.md#mcp-order: what is meant, who may, and whether it is still what was approved; then the
   * organisation's own rules.
   */
  const work = () => {
    const call = Pipeline.start<McpRead>()
      .pass(mcpTarget(mcp.registry, mcp.serverRequests, mcpOptions.http_get.enabled))
      .pass(again)
      .pass(mcpGate)
      .pass(mcpMethod)
      .pass(mcpTool)
      .pass(mcpState(mcp.states))
    return checks.reduce<typeof call>((pipeline, check) => pipeline.pass(check), call)
  }

  return {
    /** Health and public keys. */
    anyone,

    /** Not gated, but not for strangers: the list of models. */
    known: anyone.pass(pin).pass(proof).pass(apiKey).pass(singleUse(claims)),

    /**
     * Signing in: the certificate authenticates the client (RFC 8705 §2), the proof names the key to bind a
     * token to.
     */
    login: anyone.pass(pin),
    token: anyone.pass(pin).pass(tokenRequest).pass(tokenProof(nonces, baseUrls)),

    /**
     * LLM calls: who is it, with what proof, is it a call, may they, and does the organisation's own rule
     * agree.
     */
    llm: (endpoint: Endpoint) => {
      const call = anyone
        .pass(demand('egress_llm_chat', 'llm.chat'))
        .pass(pin)
        .pass(proof)
        .pass(apiKey)
        .pass(jsonBody({ limit: LLM_BODY_LIMIT }))
        .pass(llmCall(endpoint))
        // Once more: a body may take two minutes to come, and what was revoked meanwhile must hold
        // (docs/threats.md#m-06).
        .pass(again)
        .pass(llmGate)
      return checks.reduce<typeof call>((pipeline, check) => pipeline.pass(check), call)
    },

    /** MCP: only the message says whether it is about the connection or wants something done. */
    mcp: {
      read: anyone
        .pass(sameOrigin)
        .pass(pin)
        .pass(proof)
        .pass(apiKey)
        .pass(jsonBody({ limit: MCP_BODY_LIMIT, otherwise: 'mcp_message_invalid' }))
        .pass(mcpPeek)
        .pass(mcpMessage)
        .pass(mcpResourcePath(mcp.registry, mcp.sessions)),
      session: anyone.pass(sameOrigin).pass(pin).pass(proof).pass(apiKey).pass(singleUse(claims)),
      handshake: Pipeline.start<McpRead>().pass(singleUse(claims)),
      work: work(),
    },

    /** Whether a call that was granted would be granted now: what an open stream is asked. */
    stillHolds: stillAdmitted<Gated<LlmTarget>>(({ token, granted }, holder) =>
      llmGate.admit({ ...granted, holder, token }),
    ),
    mcpStillHolds: stillAdmitted<Gated<McpTarget> & { readonly message: McpMessage }>(
      async ({ token, message, granted }, holder) => {
        const { target } = granted
        const reached = reachedBy(target, granted.demand)
        const demand = reached ? await demandNow(mcp.registry, holder, reached) : granted.demand
        const now = await mcpGate.admit({ holder, token, demand, target })
        await mcpMethod.admit({ token, message, ...now })
      },
    ),

    /** The first operator secret, by the code on the terminal that started the service. */
    setup: anyone.pass(adminBody),

    /** Administration: the operator's secret over TLS, or the file system's word on the control socket. */
    admin: { read: operator, write: operator.pass(adminBody).pass(stillOperator(adminSecret)) },
    control: { read: local, write: local.pass(adminBody) },
  }
}

export type Pipelines = ReturnType<typeof pipelines>
