import { OpenStops } from '../../stops/open-stops.ts'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import { ApprovalReplay } from '../approvals/approval-rule.ts'
import { MeteredRows } from '../metered/metered-rows.ts'
import type { LeafVersion, StoredRow } from '../record/leaf.ts'
import { AccountReplay } from './accounts.ts'
import { BoundReplay } from './bound.ts'
import { PRICE_ACTION, type PriceRates } from './costs.ts'
import { GrantReplay } from './grants.ts'
import {
  configurationMembers,
  type OpenDecisions,
  principalMembers,
  type ReplayState,
  resourceMembers,
} from './ledger-state.ts'
import { statedPriceIn } from './stated-prices.ts'
import {
  type ConfigurationState,
  configurationStateOf,
  isText,
  isTexts,
  listText,
  type OwnCas,
  type PrincipalState,
  pairsOf,
  previousCasOf,
  principalStateOf,
  type ReplayedTool,
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
  /** The CAs of its own; null if no row has said them. */
  readonly bundle: OwnCas | null
  /** Digests of what else lets it in: API keys, a person of the identity provider; null if no row has said it. */
  readonly waysIn: readonly string[] | null
}

const NO_CAS: OwnCas = { digests: [], previous: [] }

export interface ReplayedResource {
  readonly states: readonly ResourceState[]
  readonly tools: Map<string, ReplayedTool>
  /** The destination of calls, and what the server says of itself, as far as rows have said it. Texts. */
  readonly fields: Readonly<Record<string, string>>
}

/** Replays rows of changes (docs/ledger.md#replay). Memory by principals, resources and tools, not rows. */
export class LedgerReplay {
  readonly principals = new Map<string, ReplayedPrincipal>()
  /** Principals whose CAs a start has said: another start says the same, or nothing. */
  readonly #hasSaidTrust = new Set<string>()
  readonly resources = new Map<string, ReplayedResource>()
  readonly configurations = new Map<string, ConfigurationState>()
  /** The last principal of each binding. */
  readonly #holders = new Map<string, string>()
  /** The kind of each attached CA, by digest. */
  readonly cas = new Map<string, string>()
  /** The phase of the replacement of the service's own CA; null: no row has said it yet. */
  #rotation: string | null = null
  /** Streams whose process names the CA by which it knows an SVID. */
  readonly anchoring = new Set<string>()
  /** The rates that rows have stated, by their names. */
  readonly prices = new Map<string, PriceRates>()
  readonly stops: OpenStops
  readonly bound: BoundReplay
  /** Limits, and the meters that calls count in. */
  readonly metered: MeteredRows
  readonly approvals: ApprovalReplay
  readonly grants: GrantReplay
  readonly accounts: AccountReplay
  /** Subjects and resources of rows of version 1, which say no state. */
  readonly before: Set<string>

  /** `state`: what the rows before the first one have left. */
  constructor(state?: ReplayState & Partial<Pick<OpenDecisions, 'open_is_cut'>>) {
    this.bound = new BoundReplay(state)
    this.metered = new MeteredRows(state)
    this.approvals = new ApprovalReplay(state?.approvals)
    this.grants = new GrantReplay(state?.grants)
    this.accounts = new AccountReplay(state?.accounts)
    this.before = new Set(state?.old)
    this.stops = new OpenStops(state?.stops)
    if (!state) return
    for (const [subject, said] of Object.entries(state.principals)) {
      const { states, bindings, trusted_cas: cas, trust_said: hasSaid, own_cas, ways_in: waysIn } = said
      this.principals.set(subject, {
        states: states.map((one) => required(principalStateOf(one))),
        bindings: new Map(Object.entries(bindings)),
        trustedCas: cas && new Set(cas),
        bundle: own_cas,
        waysIn,
      })
      if (hasSaid) this.#hasSaidTrust.add(subject)
      for (const binding of Object.keys(bindings)) this.#holders.set(binding, subject)
    }
    for (const [id, said] of Object.entries(state.resources))
      this.resources.set(id, {
        states: [required(resourceStateOf(said))],
        tools: new Map(
          Object.entries(said.tools).map(([name, [tool, digest, pending]]) => [
            name,
            { state: tool, digest, pending },
          ]),
        ),
        fields: said.fields,
      })
    for (const [digest, said] of state.configurations)
      this.configurations.set(digest, required(configurationStateOf(said)))
    for (const [digest, kind] of Object.entries(state.cas)) this.cas.set(digest, kind)
    this.#rotation = state.rotation
    for (const stream of state.names_anchors) this.anchoring.add(stream)
    for (const [price, rates] of Object.entries(state.prices ?? {})) this.prices.set(price, rates)
  }

  /** Returns what rows to come are judged by. */
  state(): ReplayState {
    const approvals = this.approvals.state()
    const grants = this.grants.state()
    const accounts = this.accounts.state()
    return {
      ...(approvals && { approvals }),
      ...this.bound.state(),
      principals: Object.fromEntries(
        [...this.principals].map(([subject, { states, bindings, trustedCas, bundle, waysIn }]) => [
          subject,
          {
            states: states.map(principalMembers),
            bindings: Object.fromEntries(bindings),
            trusted_cas: trustedCas && [...trustedCas].toSorted(),
            trust_said: this.#hasSaidTrust.has(subject),
            own_cas: bundle,
            ways_in: waysIn,
          },
        ]),
      ),
      // The last state alone: no row names an earlier one.
      resources: Object.fromEntries(
        [...this.resources].flatMap(([id, { states, tools, fields }]) =>
          states.slice(-1).map((last) => [id, resourceMembers(last, tools, fields)]),
        ),
      ),
      configurations: [...this.configurations].map(([digest, one]) => [digest, configurationMembers(one)]),
      cas: Object.fromEntries(this.cas),
      rotation: this.#rotation,
      names_anchors: [...this.anchoring].toSorted(),
      ...(this.stops.scopes.size > 0 && { stops: Object.fromEntries(this.stops.scopes) }),
      ...(grants && { grants }),
      ...(accounts && { accounts }),
      ...(this.prices.size > 0 && { prices: Object.fromEntries(this.prices) }),
      ...this.metered.replay.state(),
      old: [...this.before].toSorted(),
    }
  }

  apply(row: StoredRow, version: LeafVersion, detail: UnknownRecord): string | null {
    const [family = '', what = ''] = row.action.split('.')
    const ofBound = this.bound.apply(row, detail)
    const ofCa = family === 'ca' ? this.#seeCa(what, detail) : null
    if (row.action === 'service.started') this.#seeStart(row.stream, detail)
    if (version === 1) return this.#seeBefore(detail)
    if (ofBound !== null || ofCa !== null) return ofBound ?? ofCa
    if (row.action === PRICE_ACTION) return this.#seePrice(detail)
    if (family === 'limit') return this.metered.replay.apply(row, detail)
    if (family === 'stop') return this.stops.apply(what, detail)
    if (row.action === 'authority.bound') return this.#seeBound(detail)
    if (row.action === 'config.loaded') return this.#seeConfiguration(row.config_digest, detail)
    if (row.action === 'authority.snapshot') return this.#seeSnapshot(detail)
    if (row.action === 'authority.trusted_cas') return this.#seeTrustedCas(detail)
    if (family === 'approval') return this.approvals.apply(what, row, detail)
    if (family === 'grant') return this.grants.apply(row, what, detail)
    if (family === 'upstream_account') return this.accounts.apply(what, detail)
    if (family === 'mcp_binding') return this.#seeBinding(what, detail)
    if (family === 'mcp_resource') return this.#seeResource(what, detail)
    return TYPES.has(family) && !CANDIDATES.has(what) ? this.#seePrincipal(what, detail) : null
  }

  #seePrice(detail: UnknownRecord): string | null {
    const stated = statedPriceIn(detail)
    if (!stated) return 'does not state the rates that it names'
    this.prices.set(stated.price, stated.rates)
    return null
  }

  #seeStart(stream: string, { names_anchors: names }: UnknownRecord): void {
    if (names === true) this.anchoring.add(stream)
    else this.anchoring.delete(stream)
  }

  #seeBound(detail: UnknownRecord): string | null {
    const { subject, resource_id: id } = detail
    if (isText(id)) {
      const known = this.resources.get(id)
      if (!known) return `is about ${id}, which no row made`
      const said = fieldsIn(detail)
      this.resources.set(id, { ...known, fields: { ...known.fields, ...said } })
      return Object.entries(said).every(([name, value]) => (known.fields[name] ?? value) === value)
        ? null
        : ODD
    }
    if (!isText(subject)) return null
    const known = this.principals.get(subject)
    if (!known) return `is about ${subject}, which no row made`
    const [bundle, waysIn] = [ownCasOf(detail) ?? known.bundle, waysInOf(detail) ?? known.waysIn]
    this.principals.set(subject, { ...known, bundle, waysIn })
    const isSame = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other)
    const fits = (known.bundle?.previous ?? null) === null || isSame(known.bundle, bundle)
    return fits && (known.waysIn === null || isSame(known.waysIn, waysIn)) ? null : ODD
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
    if (what === 'bundle_replaced') return this.#seeBundle(detail)
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

  #seeBundle({ subject, digests, previous_bundles: previous }: UnknownRecord): string | null {
    const known = isText(subject) ? this.principals.get(subject) : undefined
    if (!isText(subject) || !isTexts(digests) || !known) return 'does not say which CAs vouch for whom'
    this.principals.set(subject, {
      ...known,
      bundle: { digests: digests.toSorted(), previous: previousCasOf(previous) },
    })
    return null
  }

  #seeTrustedCas({ subject, trusted_cas: digests }: UnknownRecord): string | null {
    if (!isText(subject) || !isTexts(digests)) return 'does not say which CAs vouch for whom'
    const known = this.principals.get(subject)
    if (!known) return `is about ${subject}, which no row made`
    this.principals.set(subject, { ...known, trustedCas: new Set(digests) })
    const said = this.#hasSaidTrust.has(subject) ? known.trustedCas : null
    this.#hasSaidTrust.add(subject)
    const isSame = said === null || (said.size === digests.length && digests.every((one) => said.has(one)))
    return isSame ? null : `says other CAs that vouch for ${subject} than the rows before it`
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
    const bundle = bundleBehind(what, detail, known)
    const waysIn = waysInBehind(what, detail, known)
    const states = appendState(known?.states, state)
    this.principals.set(subject, { states, bindings, trustedCas, bundle, waysIn })
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
    const fields = { ...(what === 'created' ? UNREAD : known?.fields), ...fieldsIn(detail) }
    this.resources.set(id, { states: appendState(known?.states, state), tools, fields })
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
    const { bundle = null, waysIn = null } = known ?? {}
    const [now, fault] = confirmState(states, state)
    this.principals.set(subject, { states: now, bindings: bound, trustedCas, bundle, waysIn })
    for (const [binding, id] of bindings) this.#bind(binding, subject, id)
    return fault
  }

  #snapshotOfResource(detail: UnknownRecord): string | null {
    const [state, changes] = [resourceStateOf(detail), toolChangesOf(detail)]
    const { resource_id: id } = detail
    if (!state || !changes || !isText(id)) return 'does not carry the state that it found'
    const {
      states = [state],
      tools = new Map<string, ReplayedTool>(),
      fields = {},
    } = this.resources.get(id) ?? {}
    const [now, fault] = confirmState(states, state)
    this.resources.set(id, { states: now, tools, fields })
    changeTools(tools, changes)
    return fault
  }
}

/** Proven by `isLedgerState`. */
function required<State>(state: State | null): State {
  if (state === null) throw new Error('a state is not formed as it should be')
  return state
}

/** The steps of a CA's replacement: the phase that each begins in, and the one that it makes. */
const ROTATION_STEPS: Readonly<Record<string, readonly [from: string, to: string]>> = {
  rotation_prepared: ['none', 'prepared'],
  rotation_issued: ['prepared', 'issuing'],
  rotation_finished: ['issuing', 'none'],
  'rotation_cancelled prepared': ['prepared', 'none'],
  'rotation_cancelled issuing': ['issuing', 'prepared'],
}

const ODD = 'says another state than the rows before it'

/** Members of rows that say where the calls of an MCP server go, and what it says of itself. */
const FIELDS = [
  ...['endpoint_url_sha256', 'auth_type', 'auth_secret_ref', 'allowed_domains', 'oauth_sha256'],
  ...['server_sha256', 'instructions_sha256'],
]

/** A server that was never read says nothing to models. */
const UNREAD = { instructions_sha256: 'null' }

function fieldsIn(detail: UnknownRecord): Readonly<Record<string, string>> {
  const said = isObject(detail.fields) ? detail.fields : detail
  return Object.fromEntries(
    FIELDS.flatMap((name) => (Object.hasOwn(said, name) ? [[name, listText(said[name])]] : [])),
  )
}

const ownCasOf = ({
  trust_bundle: digests,
  previous_bundles: previous = [],
}: UnknownRecord): OwnCas | null =>
  isTexts(digests) ? { digests: digests.toSorted(), previous: previousCasOf(previous) } : null

function bundleBehind(
  what: string,
  detail: UnknownRecord,
  known: ReplayedPrincipal | undefined,
): OwnCas | null {
  if (what === 'enrolled_spiffe') return ownCasOf(detail)
  if (ENROLLMENTS.has(what) || what === 'erased') return NO_CAS
  return known ? known.bundle : detail.spiffe_id === undefined ? NO_CAS : null
}

function waysInOf({ api_key: key, identity_sha256: identity }: UnknownRecord): readonly string[] | null {
  if (isTexts(key)) return [`API key ${key.join(' ')}`]
  return isText(identity) ? [`identity ${identity}`] : null
}

function waysInBehind(
  what: string,
  detail: UnknownRecord,
  known: ReplayedPrincipal | undefined,
): readonly string[] | null {
  const said = waysInOf(detail)
  if (what === 'enrolled_byoca' || (what === 'created' && detail.issuer !== undefined)) return said
  if (what === 'created' || what === 'enrolled_spiffe' || what === 'erased') return []
  return known ? known.waysIn : null
}

/** Actions of rows that change a principal begin so. */
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
