import { type Actor, localOperator } from '../plugins/admin-secret.ts'
import { capability, demand } from '../plugins/capability.ts'
import { type DpopSources, dpop } from '../plugins/dpop.ts'
import { jsonBody } from '../plugins/json-body.ts'
import { type PinLookup, pin } from '../plugins/pin.ts'
import { type Arrival, Pipeline, type Plugin } from '../plugins/plugin.ts'
import { type ClaimSources, singleUse } from '../plugins/single-use.ts'
import { tokenProof } from './auth/token-proof.ts'
import { tokenRequest } from './auth/token-request.ts'
import type { Configuration } from './configuration.ts'
import { llmCall } from './llm/call.ts'
import type { Endpoint } from './llm/endpoints.ts'

const MIB = 1024 * 1024
/** Prompts carry pictures and long histories (WIRE.md §3). */
const LLM_BODY_LIMIT = 32 * MIB
const BODY_LIMIT = MIB

export interface PipelineSources {
  readonly configuration: Configuration
  readonly pinned: PinLookup
  /** What proofs and tokens are checked with; the mode comes from the configuration. */
  readonly constrained: Omit<DpopSources, 'mode' | 'noDowngrade'>
  readonly claims: ClaimSources
  /** Made once: its memory of failures must outlive a configuration. */
  readonly operator: Plugin<Arrival, { actor: Actor }>
}

/** Every question that is asked at each kind of door, in its order. The first refusal ends it. */
export function pipelines({ configuration, pinned, constrained, claims, operator: secret }: PipelineSources) {
  const { dpopMode: mode, noDowngrade } = configuration
  const proof = dpop({ ...constrained, mode, noDowngrade })
  const who = Pipeline.start()
  const operator = who.pass(secret)
  const local = who.pass(localOperator)
  const known = who.pass(pin(pinned)).pass(proof).pass(singleUse(claims))

  return {
    /** Health and public keys: anyone. */
    anyone: who,

    /** Not gated, but not for strangers: the list of models. */
    known,

    /** Signing in: the certificate is the client's authentication (RFC 8705 §2), the proof the key to bind a token to. */
    login: who.pass(pin(pinned)),
    token: who
      .pass(tokenRequest)
      .pass(pin(pinned))
      .pass(tokenProof(constrained.nonces, constrained.baseUrls)),

    /** LLM calls: who is it, with what proof, is it a call, may they, and does the organisation's own rule agree. */
    llm: (endpoint: Endpoint) => {
      const call = who
        .pass(demand('egress_llm_chat', 'llm.chat'))
        .pass(pin(pinned))
        .pass(proof)
        .pass(jsonBody({ limit: LLM_BODY_LIMIT }))
        .pass(llmCall(endpoint))
        .pass(capability)
      return configuration.checks.reduce<typeof call>((pipeline, check) => pipeline.pass(check), call)
    },

    /** Administration: the operator's secret over TLS, or the file system's word on the control socket. */
    admin: { read: operator, write: operator.pass(jsonBody({ limit: BODY_LIMIT, empty: true })) },
    control: { read: local, write: local.pass(jsonBody({ limit: BODY_LIMIT, empty: true })) },
  }
}

export type Pipelines = ReturnType<typeof pipelines>
