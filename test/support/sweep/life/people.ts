import type { JsonObject } from '../../../../db/support/json.ts'

/** A pair of a thumbprint or key, and the instant before which it counts; null for the current one. */
export type Pin = readonly [value: string, until: string | null]

/** A principal as its last row of change has made it. */
export interface Person {
  readonly type: 'agent' | 'user' | 'workload'
  readonly subject: string
  /** The readable id of a user, as long as it exists. */
  name: string | null
  revision: number
  capabilities: readonly string[]
  active: boolean
  thumbprints: readonly Pin[]
  keys: readonly Pin[]
}

/** The one MCP resource of a history. */
export interface Server {
  revision: number
  required: string | null
  own: Readonly<Record<string, string>>
  enabled: boolean
  /** By name: the approved digest, or null where it waits. */
  readonly tools: Map<string, string | null>
}

export interface Configuration {
  readonly digest: string
  readonly mode: 'off' | 'optional' | 'required'
  readonly noDowngrade: boolean
  readonly enforced: boolean
  readonly checks: readonly string[]
}

export const stateOf = (person: Person): JsonObject => ({
  subject: person.subject,
  revision: person.revision,
  capabilities: person.capabilities,
  is_active: person.active,
  thumbprints: person.thumbprints,
  dpop_jkts: person.keys,
})

export const stateOfServer = ({ revision, required, own, enabled }: Server): JsonObject => ({
  resource_id: 'mcpr_1',
  name: 'files',
  revision,
  required_capability: required,
  tool_capabilities: own,
  enabled,
})

export const stateOfConfiguration = (loaded: Configuration): JsonObject => ({
  egress_dpop_mode: loaded.mode,
  no_downgrade: loaded.noDowngrade,
  enforce_tools_call: loaded.enforced,
  list: 'bound',
  checks: loaded.checks.map((name) => ({
    name,
    digest: `of ${name}`,
    shadow: name === 'watch',
    options: 'o',
  })),
})
