import type { PrincipalType } from '../schema.ts'
import { isObject, type JsonObject } from '../support/json.ts'

/** The plural names of those that make calls, as paths of the API have them. */
export const STOPPED_KINDS = ['agents', 'users', 'workloads'] as const

export type StoppedKind = (typeof STOPPED_KINDS)[number]

const KIND_OF_TYPE: Readonly<Partial<Record<PrincipalType, StoppedKind>>> = {
  agent: 'agents',
  user: 'users',
  workload: 'workloads',
}

/**
 * The calls that a stop refuses, as rows say it (docs/stops.md): all; those to models or to MCP; those of one
 * principal, by its name in the ledger; those that reach one MCP resource; those of a kind of principals.
 */
export type StopScope =
  | 'all'
  | 'llm'
  | 'mcp'
  | { readonly principal: string }
  | { readonly resource: string }
  | { readonly kind: StoppedKind }

export interface CallStop {
  readonly id: string
  readonly scope: StopScope
  readonly reason: string
}

/** The members of a call that stops are chosen by, as its decision row has them. */
export interface StoppableCall {
  /** `egress_llm_chat`, or `mcp_` and a method. */
  readonly action: string
  /** The name in the ledger. */
  readonly principal: string | null
  readonly type: string | null
  /** The id of the MCP resource that it reaches; null: none. */
  readonly resource: string | null
}

/** Tells whether a stop refuses a call. The gate asks it, and whoever verifies the rows. */
export function isStopped(scope: StopScope, { action, principal, type, resource }: StoppableCall): boolean {
  if (scope === 'all') return true
  if (scope === 'llm' || scope === 'mcp') return action.startsWith('mcp_') === (scope === 'mcp')
  if ('principal' in scope) return scope.principal === principal
  if ('resource' in scope) return scope.resource === resource
  return KIND_OF_TYPE[type as PrincipalType] === scope.kind
}

/** Reads a scope of a row or a table; null if it is none. */
export function stopScopeOf(value: unknown): StopScope | null {
  if (value === 'all' || value === 'llm' || value === 'mcp') return value
  if (!isObject(value) || Object.keys(value).length !== 1) return null
  const { principal, resource, kind } = value
  if (typeof principal === 'string') return { principal }
  if (typeof resource === 'string') return { resource }
  const known = STOPPED_KINDS.find((one) => one === kind)
  return known ? { kind: known } : null
}

/** The members of the rows of a stop (docs/ledger.md#stops). */
export const stopDetail = ({ id, scope, reason }: CallStop): JsonObject => ({
  stop: id,
  scope: typeof scope === 'string' ? scope : { ...scope },
  reason,
})
