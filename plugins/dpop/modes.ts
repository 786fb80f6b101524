import type { DpopMode } from './dpop.ts'

/** Every value of `egress_dpop_mode`; anything else stops the boot (docs/protocol.md#signing-in). */
export const DPOP_MODES = ['off', 'optional', 'required'] as const satisfies readonly DpopMode[]
