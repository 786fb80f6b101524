import type { CallAuthority } from './arrival.ts'
import type { CapabilityDemand, Principal } from './facts.ts'

/**
 * The permission behind every request that leaves for a provider, an MCP server or the public internet. Each
 * kind is made in exactly one place (`test/layers.test.ts` looks), so an unjudged call does not compile.
 */
export type Permit = CallPermit | OperatorPermit | CatalogPermit | CredentialPermit

declare const permitted: unique symbol

interface PermitBase<Kind extends string> {
  readonly kind: Kind
  /** Compared, and if need be asked, right before each request leaves. */
  readonly authority: CallAuthority
  readonly [permitted]: true
}

/** A call that the capability gate let through. Only `plugins/capability.ts` makes one. */
export interface CallPermit<Target = unknown> extends PermitBase<'call'> {
  /** Read from the database by the gate. */
  readonly principal: Principal
  readonly demand: CapabilityDemand
  readonly target: Target
}

/** The reading of a registered MCP server. Only `proxy/mcp/pinning/inspect.ts` makes one. */
export interface OperatorPermit extends PermitBase<'reading'> {
  readonly resourceId: string
}

/**
 * The gateway's own reading of a provider's list of models. Only `proxy/tasks/refresh-models.ts` makes one.
 */
export interface CatalogPermit extends PermitBase<'catalogue'> {
  readonly provider: string
}

/** The fetching of a provider's key. Only `proxy/llm/credentials/sources.ts` makes one. */
export interface CredentialPermit extends PermitBase<'credential'> {
  readonly provider: string
}
