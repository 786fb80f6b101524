import { z } from 'zod'
import { DPOP_MODES } from './modes.ts'

export const dpopOptions = z.strictObject({
  egress_dpop_mode: z
    .enum(DPOP_MODES)
    .default('optional')
    .describe(
      'off ignores DPoP proofs; optional verifies a proof that is present and lets mutual TLS alone pass; ' +
        'required demands a proof on every call. Default optional. MCP_PROXY_EGRESS_DPOP_MODE overrides it.',
    ),
  no_downgrade: z
    .boolean()
    .default(false)
    .describe(
      'true: a principal that has registered a DPoP key is never let through without a proof by that key, even while the mode ' +
        'is optional, or with a token that is bound to another key. Default false.',
    ),
})
