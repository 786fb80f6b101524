import { isObject, type UnknownRecord } from '../../support/json.ts'
import type { LeafVersion, StoredRow } from '../record/leaf.ts'
import {
  type ConfigurationState,
  configurationStateOf,
  isText,
  isTexts,
  type PrincipalState,
  pairsOf,
  principalStateOf,
  type ResourceState,
  resourceStateOf,
} from './states.ts'

/** The states of a principal or a resource that are kept: summaries of refusals may name an earlier one. */
const MAX_STATES = 16
/** The configurations that are kept: a call may end long after a reload. */
const MAX_CONFIGURATIONS = 256

export interface ReplayedPrincipal {
  /** The last states, oldest first. Never empty. */
  readonly states: readonly PrincipalState[]
  /** Resource ids by binding id. */
  readonly bindings: Map<string, string>
  /** The digests of the CAs that vouch for it; null if no row has said it. */
  readonly trustedCas: Set<string> | null
}

export interface ReplayedTool {
  readonly state: 'approved' | 'quarantined' | 'gone'
  /** The approved digest; null of one that was never approved. */
  readonly digest: string | null
  /** The digest that waits; null if none does. */
  readonly pending: string | null
}

export interface ReplayedResource {
  readonly states: readonly ResourceState[]
  readonly tools: Map<string, ReplayedTool>
}

/** Replays rows of changes (docs/ledger.md#replay). Memory by principals, resources and tools, not rows. */
export class LedgerReplay {
  readonly principals = new Map<string, ReplayedPrincipal>()
  readonly resources = new Map<string, ReplayedResource>()
  readonly configurations = new Map<string, ConfigurationState>()
  /** The last principal of each binding. */
  readonly #holders = new Map<string, string>()
  /** The kind of each attached CA, by digest. */
  readonly cas = new Map<string, string>()
  /** The phase of the replacement of the service's own CA; null: no row has said it yet. */
  #rotation: string | null = null
  /** Subjects and resources of rows of version 1, which say no state. */
  readonly before = new Set<string>()

  apply(row: StoredRow, version: LeafVersion, detail: UnknownRecord): string | null {
    const [family = '', what = ''] = row.action.split('.')
    const ofCa = family === 'ca' ? this.#seeCa(what, detail) : null
    if (version === 1) return this.#seeBefore(detail)
    if (ofCa !== null) return ofCa
    if (row.action === 'config.loaded') return this.#seeConfiguration(row.config_digest, detail)
    if (row.action === 'authority.snapshot') return this.#seeSnapshot(detail)
    if (row.action === 'authority.trusted_cas') return this.#seeTrustedCas(detail)
    if (family === 'mcp_binding') return this.#seeBinding(what, detail)
    if (family === 'mcp_resource') return this.#seeResource(what, detail)
    return TYPES.has(family) && !CANDIDATES.has(what) ? this.#seePrincipal(what, detail) : null
  }

  #seeBefore({ subject, resource_id: id }: UnknownRecord): null {
    for (const name of [subject, id]) if (isText(name)) this.before.add(name)
    return null
  }

  // The same in both versions.
  #seeCa(what: string, detail: UnknownRecord): string | null {
    const { digests, digest, kind } = detail
    if (what === 'attached' && isTexts(digests) && isText(kind)) {
      for (const name of digests) this.cas.set(name, kind)
      return null
    }
    if (what === 'detached' && isText(digest)) {
      this.cas.delete(digest)
      for (const { trustedCas } of this.principals.values()) trustedCas?.delete(digest)
    }
    if (what === 'trusted' || what === 'distrusted') return this.#seeTrust(what, detail)
    if (what.startsWith('rotation_')) return this.#seeRotation(what, detail)
    return what !== 'attached' || isTexts(digests) ? null : 'does not say which CAs'
  }

  #seeRotation(what: string, { ca, phase }: UnknownRecord): string | null {
    const step = ROTATION_STEPS[what === 'rotation_cancelled' ? `${what} ${String(phase)}` : what]
    if (!step || !isObject(ca) || !isText(ca.intermediate_sha256)) return 'does not say which CA it is about'
    const [from, to] = step
    const before = this.#rotation
    this.#rotation = to
    return before === null || before === from ? null : `is a step from ${from}, behind ${before}`
  }

  #seeTrust(what: 'trusted' | 'distrusted', { digest, subjects }: UnknownRecord): string | null {
    if (!isText(digest) || !isTexts(subjects)) return 'does not say which CA vouches for whom'
    for (const subject of subjects) {
      const known = this.principals.get(subject)
      if (!known) return `is about ${subject}, which no row made`
      if (what === 'trusted') known.trustedCas?.add(digest)
      else known.trustedCas?.delete(digest)
    }
    return null
  }

  #seeTrustedCas({ subject, trusted_cas: digests }: UnknownRecord): string | null {
    if (!isText(subject) || !isTexts(digests)) return 'does not say which CAs vouch for whom'
    const known = this.principals.get(subject)
    if (!known) return `is about ${subject}, which no row made`
    this.principals.set(subject, { ...known, trustedCas: new Set(digests) })
    return null
  }

  #seeConfiguration(digest: string, detail: UnknownRecord): string | null {
    const configuration = configurationStateOf(detail)
    if (!configuration) return 'does not carry what the configuration demands'
    // Moved to the end: it is among the last.
    this.configurations.delete(digest)
    this.configurations.set(digest, configuration)
    const [oldest] = this.configurations.keys()
    if (this.configurations.size > MAX_CONFIGURATIONS && oldest !== undefined)
      this.configurations.delete(oldest)
    return null
  }

  #seePrincipal(what: string, detail: UnknownRecord): string | null {
    const state = principalStateOf(detail)
    const { subject } = detail
    if (!state || !isText(subject)) return 'does not carry the state that it makes'
    const known = this.principals.get(subject)
    const bindings = what === 'erased' || !known ? new Map<string, string>() : known.bindings
    const trustedCas = trustedCasBehind(what, detail, known)
    this.principals.set(subject, { states: appendState(known?.states, state), bindings, trustedCas })
    return revisionGap(known?.states, state, this.before.has(subject))
  }

  #seeResource(what: string, detail: UnknownRecord): string | null {
    const [state, changes] = [resourceStateOf(detail), toolChangesOf(detail)]
    const { resource_id: id } = detail
    if (!state || !changes || !isText(id)) return 'does not carry the state that it makes'
    const known = this.resources.get(id)
    const fault = revisionGap(known?.states, state, this.before.has(id))
    if (what === 'deleted') {
      this.resources.delete(id)
      for (const { bindings } of this.principals.values())
        for (const [binding, to] of bindings) if (to === id) bindings.delete(binding)
      return fault
    }
    const tools = known?.tools ?? new Map<string, ReplayedTool>()
    this.resources.set(id, { states: appendState(known?.states, state), tools })
    changeTools(tools, changes)
    return fault
  }

  #seeBinding(what: string, { binding, subject, resource_id: id }: UnknownRecord): string | null {
    if (!isText(binding) || !isText(subject) || !isText(id)) return 'does not say what it binds'
    const known = this.principals.get(subject)
    if (what !== 'created') {
      if (known?.bindings.get(binding) === id) known.bindings.delete(binding)
      return null
    }
    if (!known) return `binds ${subject}, which no row made`
    this.#bind(binding, subject, id)
    return null
  }

  #bind(binding: string, subject: string, id: string): void {
    // A binding is one of one principal.
    this.principals.get(this.#holders.get(binding) ?? subject)?.bindings.delete(binding)
    this.#holders.set(binding, subject)
    this.principals.get(subject)?.bindings.set(binding, id)
  }

  #seeSnapshot(detail: UnknownRecord): string | null {
    return detail.resource_id === undefined
      ? this.#snapshotOfPrincipal(detail)
      : this.#snapshotOfResource(detail)
  }

  #snapshotOfPrincipal(detail: UnknownRecord): string | null {
    const [state, bindings] = [principalStateOf(detail), pairsOf(detail.bindings)]
    const { subject } = detail
    if (!state || !bindings || !isText(subject)) return 'does not carry the state that it found'
    const known = this.principals.get(subject)
    const { states = [state], bindings: bound = new Map<string, string>(), trustedCas = null } = known ?? {}
    const [now, fault] = confirmState(states, state)
    this.principals.set(subject, { states: now, bindings: bound, trustedCas })
    for (const [binding, id] of bindings) this.#bind(binding, subject, id)
    return fault
  }

  #snapshotOfResource(detail: UnknownRecord): string | null {
    const [state, changes] = [resourceStateOf(detail), toolChangesOf(detail)]
    const { resource_id: id } = detail
    if (!state || !changes || !isText(id)) return 'does not carry the state that it found'
    const { states = [state], tools = new Map<string, ReplayedTool>() } = this.resources.get(id) ?? {}
    const [now, fault] = confirmState(states, state)
    this.resources.set(id, { states: now, tools })
    changeTools(tools, changes)
    return fault
  }
}

/** The steps of a CA's replacement: the phase that each begins in, and the one that it makes. */
const ROTATION_STEPS: Readonly<Record<string, readonly [from: string, to: string]>> = {
  rotation_prepared: ['none', 'prepared'],
  rotation_issued: ['prepared', 'issuing'],
  rotation_finished: ['issuing', 'none'],
  'rotation_cancelled prepared': ['prepared', 'none'],
  'rotation_cancelled issuing': ['issuing', 'prepared'],
}

const TYPES: ReadonlySet<string> = new Set(['agent', 'user', 'workload', 'operator'])

const CANDIDATES: ReadonlySet<string> = new Set(['candidate_set', 'candidate_removed'])

/** An enrollment says the CAs, an erasure ends them. An older enrollment by a SPIFFE id named none: null. */
function trustedCasBehind(
  what: string,
  { trusted_cas: digests, spiffe_id: spiffeId }: UnknownRecord,
  known: ReplayedPrincipal | undefined,
): Set<string> | null {
  if (what === 'enrolled_spiffe') return isTexts(digests) ? new Set(digests) : null
  if (ENROLLMENTS.has(what) || what === 'erased') return new Set()
  return known ? known.trustedCas : spiffeId === undefined ? new Set() : null
}

/** Enrollments by a certificate of the agent's own: no CA vouches for it afterwards. */
const ENROLLMENTS: ReadonlySet<string> = new Set(['created', 'enrolled_byoca'])

type RevisionedState = PrincipalState | ResourceState

const appendState = <S extends RevisionedState>(before: readonly S[] = [], state: S): readonly S[] => [
  ...before.slice(1 - MAX_STATES),
  state,
]

function revisionGap(
  before: readonly RevisionedState[] | undefined,
  made: RevisionedState,
  isOld: boolean,
): string | null {
  const last = before?.at(-1)?.revision
  // An object older than version 2 that was never shown in a snapshot begins anywhere.
  if (last === undefined && isOld) return null
  return made.revision === (last ?? 0) + 1
    ? null
    : `makes revision ${made.revision}, behind ${last ?? 'none'}`
}

/** Compares a snapshot with the last state. The snapshot counts all the same. */
function confirmState<S extends RevisionedState>(
  states: readonly S[],
  state: S,
): readonly [readonly S[], string | null] {
  // The members of a state are always written in the same order.
  if (JSON.stringify(states.at(-1)) === JSON.stringify(state)) return [states, null]
  return [appendState(states, state), 'is a snapshot of another state than the rows before it say']
}

interface ToolChanges {
  readonly pinned: readonly (readonly [string, string])[]
  readonly quarantined: readonly (readonly [string, string])[]
  readonly gone: readonly string[]
}

function toolChangesOf(detail: UnknownRecord): ToolChanges | null {
  const [pinned, quarantined] = [pairsOf(detail.pinned), pairsOf(detail.quarantined)]
  const { gone = [] } = detail
  return pinned && quarantined && isTexts(gone) ? { pinned, quarantined, gone } : null
}

function changeTools(tools: Map<string, ReplayedTool>, { pinned, quarantined, gone }: ToolChanges): void {
  for (const [tool, digest] of pinned) tools.set(tool, { state: 'approved', digest, pending: null })
  for (const [tool, pending] of quarantined) {
    tools.set(tool, { state: 'quarantined', digest: tools.get(tool)?.digest ?? null, pending })
  }
  for (const tool of gone) {
    const { digest = null, pending = null } = tools.get(tool) ?? {}
    tools.set(tool, { state: 'gone', digest, pending })
  }
}
