import type { Configuration, Person, Pin, Server } from './people.ts'

/** A call as it comes to the door. */
export interface Asked {
  readonly who: Person
  readonly at: string
  readonly thumbprint: string
  readonly key: string | null
  /** The tool of a call, the method's own capability of others. */
  readonly tool?: string
  readonly demand?: string
}

export interface World {
  readonly configuration: Configuration
  readonly server: Server
  /** The binding of a principal, by its subject. */
  readonly bindings: ReadonlyMap<string, string>
}

/** What came of asking the rule (docs/ledger.md#rule), of what is there and not of any row. */
export interface Fate {
  readonly demanded: readonly string[]
  /** Null where the call is allowed. */
  readonly reason: string | null
  readonly missing?: string
}

const counts = (pins: readonly Pin[], at: string): readonly string[] =>
  pins.filter(([, until]) => until === null || at < until).map(([value]) => value)

const ANY = 'mcp.tools.call'

/** What a call has to hold, in the order asked. */
function demandedOf({ tool, demand }: Asked, { server, configuration }: World): readonly string[] {
  if (tool === undefined) return [demand ?? 'llm.chat']
  const own = server.own[tool] ?? server.required
  const list = own === null ? [] : [own]
  return configuration.enforced && own !== ANY ? [...list, ANY] : list
}

export function fateOf(asked: Asked, world: World): Fate {
  const { who, at, thumbprint, key, tool } = asked
  const { configuration, server, bindings } = world
  const demanded = demandedOf(asked, world)
  const no = (reason: string): Fate => ({ demanded, reason })
  if (!who.active) return no('principal_deactivated')
  if (!counts(who.thumbprints, at).includes(thumbprint)) return no('certificate_not_pinned')
  const proof = faultOfProof(counts(who.keys, at), key, configuration)
  if (proof !== null) return no(proof)
  if (tool !== undefined && (!server.enabled || !server.tools.has(tool))) return no('mcp_tool_unknown')
  if (tool !== undefined && !bindings.has(who.subject)) return no('mcp_not_bound')
  const missing = demanded.find((one) => !who.capabilities.includes(one))
  if (missing !== undefined) return { ...no('capability_missing'), missing }
  if (who.capabilities.length === 0) return { demanded: [ANY], reason: 'capability_missing', missing: ANY }
  if (tool !== undefined && server.tools.get(tool) === null) return no('mcp_tool_quarantined')
  return { demanded, reason: null }
}

function faultOfProof(
  keys: readonly string[],
  key: string | null,
  { mode, noDowngrade }: Configuration,
): string | null {
  if (mode === 'off') return null
  if (key === null) return mode === 'required' || (noDowngrade && keys.length > 0) ? 'proof_required' : null
  if (keys.length === 0) return mode === 'required' ? 'proof_required' : null
  return keys.includes(key) ? null : 'proof_invalid'
}
