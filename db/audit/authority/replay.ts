import type { Members } from '../../json.ts'
import type { LeafVersion, StoredRow } from '../leaf.ts'
import {
  type ConfigurationState,
  configurationOf,
  isText,
  isTexts,
  type PrincipalState,
  pairsOf,
  principalStateOf,
  type ResourceState,
  resourceStateOf,
} from './states.ts'

/** The states of a principal or a resource that are kept: summaries of refusals may name an earlier one. */
const KEPT_STATES = 16
/** The configurations that are kept: a call may end long after a reload. */
const KEPT_CONFIGURATIONS = 256

export interface KnownPrincipal {
  /** The last states, oldest first. Never empty. */
  readonly states: readonly PrincipalState[]
  /** Its bindings: the id of each by the resource's. */
  readonly bindings: Map<string, string>
}

export interface KnownTool {
  readonly state: 'approved' | 'quarantined' | 'gone'
  /** The approved digest; null of one that was never approved. */
  readonly digest: string | null
  /** The digest that waits; null where none does. */
  readonly pending: string | null
}

export interface KnownResource {
  readonly states: readonly ResourceState[]
  readonly tools: Map<string, KnownTool>
}

/**
 * What the rows of changes say, replayed row by row (docs/ledger.md#replay). Memory by principals, resources
 * and tools, not by rows.
 */
export class Replay {
  readonly principals = new Map<string, KnownPrincipal>()
  readonly resources = new Map<string, KnownResource>()
  readonly configurations = new Map<string, ConfigurationState>()
  /** The kind of each attached CA, by digest. */
  readonly cas = new Map<string, string>()
  /** Subjects and resources of rows of version 1, which say no state. */
  readonly before = new Set<string>()

  /** Takes a row of a change. Returns what is wrong with it, as half a sentence, or null. */
  see(row: StoredRow, version: LeafVersion, detail: Members): string | null {
    const [family = '', what = ''] = row.action.split('.')
    if (family === 'ca') return this.#seeCa(what, detail)
    if (version === 1) return this.#seeBefore(detail)
    if (row.status !== 'success') return null
    if (row.action === 'config.loaded') return this.#seeConfiguration(row.config_digest, detail)
    if (row.action === 'authority.snapshot') return this.#seeSnapshot(detail)
    if (family === 'mcp_binding') return this.#seeBinding(what, detail)
    if (family === 'mcp_resource') return this.#seeResource(what, detail)
    return CHANGES_OF_PRINCIPALS.test(row.action) ? this.#seePrincipal(what, detail) : null
  }

  #seeBefore({ subject, resource_id: id }: Members): null {
    for (const name of [subject, id]) if (isText(name)) this.before.add(name)
    return null
  }

  // The same in both versions.
  #seeCa(what: string, { digests, digest, kind }: Members): string | null {
    if (what === 'attached' && isTexts(digests) && isText(kind)) {
      for (const name of digests) this.cas.set(name, kind)
      return null
    }
    if (what === 'detached' && isText(digest)) this.cas.delete(digest)
    return what === 'detached' || isTexts(digests) ? null : 'does not say which CAs'
  }

  #seeConfiguration(digest: string, detail: Members): string | null {
    const configuration = configurationOf(detail)
    if (!configuration) return 'does not carry what the configuration demands'
    // Again at the end, where it is among the last.
    this.configurations.delete(digest)
    this.configurations.set(digest, configuration)
    const [oldest] = this.configurations.keys()
    if (this.configurations.size > KEPT_CONFIGURATIONS && oldest !== undefined)
      this.configurations.delete(oldest)
    return null
  }

  #seePrincipal(what: string, detail: Members): string | null {
    const state = principalStateOf(detail)
    const { subject } = detail
    if (!state || !isText(subject)) return 'does not carry the state that it makes'
    const known = this.principals.get(subject)
    const bindings = what === 'erased' || !known ? new Map<string, string>() : known.bindings
    this.principals.set(subject, { states: kept(known?.states, state), bindings })
    return notTheNext(known?.states, state, this.before.has(subject))
  }

  #seeResource(what: string, detail: Members): string | null {
    const state = resourceStateOf(detail)
    const { resource_id: id } = detail
    if (!state || !isText(id)) return 'does not carry the state that it makes'
    const known = this.resources.get(id)
    const fault = notTheNext(known?.states, state, this.before.has(id))
    if (what === 'deleted') {
      this.resources.delete(id)
      for (const { bindings } of this.principals.values()) bindings.delete(id)
      return fault
    }
    const tools = known?.tools ?? new Map<string, KnownTool>()
    this.resources.set(id, { states: kept(known?.states, state), tools })
    return fault ?? changeTools(tools, detail)
  }

  #seeBinding(what: string, { binding, subject, resource_id: id }: Members): string | null {
    if (!isText(binding) || !isText(subject) || !isText(id)) return 'does not say what it binds'
    const known = this.principals.get(subject)
    if (what === 'revoked') {
      if (known?.bindings.get(id) === binding) known.bindings.delete(id)
      return null
    }
    if (!known) return `binds ${subject}, which no row made`
    known.bindings.set(id, binding)
    return null
  }

  #seeSnapshot(detail: Members): string | null {
    return isText(detail.subject)
      ? this.#snapshotOfPrincipal(detail.subject, detail)
      : this.#snapshotOfResource(detail)
  }

  #snapshotOfPrincipal(subject: string, detail: Members): string | null {
    const [state, bindings] = [principalStateOf(detail), pairsOf(detail.bindings)]
    if (!state || !bindings) return 'does not carry the state that it found'
    const known = this.principals.get(subject) ?? { states: [state], bindings: new Map<string, string>() }
    this.principals.set(subject, known)
    for (const [binding, id] of bindings) known.bindings.set(id, binding)
    return isLast(known.states, state) ? null : 'is a snapshot of another state than the rows before it say'
  }

  #snapshotOfResource(detail: Members): string | null {
    const state = resourceStateOf(detail)
    const { resource_id: id } = detail
    if (!state || !isText(id)) return 'does not carry the state that it found'
    const known = this.resources.get(id) ?? { states: [state], tools: new Map<string, KnownTool>() }
    this.resources.set(id, known)
    const fault = changeTools(known.tools, detail)
    return isLast(known.states, state) ? fault : 'is a snapshot of another state than the rows before it say'
  }
}

const CHANGES_OF_PRINCIPALS =
  /^(?:agent|user|workload)\.(?:created|enrolled_\w+|capabilities_(?:set|patched)|deactivated|reactivated|cert_rotated|certificate_issued|dpop_jwk_set|erased)$/

type Numbered = PrincipalState | ResourceState

const kept = <S extends Numbered>(before: readonly S[] = [], state: S): readonly S[] => [
  ...before.slice(1 - KEPT_STATES),
  state,
]

function notTheNext(before: readonly Numbered[] | undefined, made: Numbered, isOld: boolean): string | null {
  const last = before?.at(-1)?.revision
  // What is older than version 2 and was never shown in a snapshot begins anywhere.
  if (last === undefined && isOld) return null
  return made.revision === (last ?? 0) + 1
    ? null
    : `makes revision ${made.revision}, behind ${last ?? 'none'}`
}

// The members of a state are always written in the same order.
const isLast = (states: readonly Numbered[], state: Numbered): boolean =>
  JSON.stringify(states.at(-1)) === JSON.stringify(state)

function changeTools(tools: Map<string, KnownTool>, detail: Members): string | null {
  const [pinned, quarantined] = [pairsOf(detail.pinned), pairsOf(detail.quarantined)]
  const { gone = [] } = detail
  if (!pinned || !quarantined || !isTexts(gone)) return 'does not say which tools were pinned'
  for (const [tool, digest] of pinned) tools.set(tool, { state: 'approved', digest, pending: null })
  for (const [tool, pending] of quarantined) {
    tools.set(tool, { state: 'quarantined', digest: tools.get(tool)?.digest ?? null, pending })
  }
  for (const tool of gone) {
    const { digest = null, pending = null } = tools.get(tool) ?? {}
    tools.set(tool, { state: 'gone', digest, pending })
  }
  return null
}
