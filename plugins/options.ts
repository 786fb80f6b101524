import { z } from 'zod'
import type { DpopMode } from './dpop/dpop.ts'

/** Every value of `egress_dpop_mode`; anything else stops the boot (WIRE.md §5). */
export const DPOP_MODES = ['off', 'optional', 'required'] as const satisfies readonly DpopMode[]

export const pinOptions = z.strictObject({
  rotation_grace_hours: z
    .int()
    .min(0)
    .max(720)
    .default(48)
    .describe(
      'How long the previous certificate of a principal stays valid after a rotation. Hours. Default 48. ' +
        '0 ends it at once; longer gives agents more time and a stolen old key more use.',
    ),
})

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
      'true: a principal that has registered a DPoP key is never let through without a proof by it, also while the mode ' +
        'is optional, nor with a token that is bound to another key. Default false.',
    ),
})

export const capabilityOptions = z.strictObject({})

export const auditOptions = z.strictObject({
  queue_limit: z
    .int()
    .min(64)
    .max(1_000_000)
    .default(8192)
    .describe(
      'How many rows may wait for the ledger before further calls are refused with 503. Default 8192. ' +
        'Longer rides out a slower disk and costs memory.',
    ),
})

export type PinOptions = z.output<typeof pinOptions>
export type DpopOptions = z.output<typeof dpopOptions>
export type AuditOptions = z.output<typeof auditOptions>
