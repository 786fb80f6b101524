import canonicalize from 'canonicalize'
import type { StopScopes } from '../../stops/open-stops.ts'
import { stopScopeOf } from '../../stops/stop.ts'
import { isObject } from '../../support/json.ts'
import { type ApprovalRule, isReplayedApproval, type ReplayedApproval } from '../approvals/approval-rule.ts'
import type { LimitsState } from '../metered/limit-replay.ts'
import { isLimitsState } from '../metered/limits-state.ts'
import type { LeafVersion } from '../record/leaf.ts'
import { type AccountState, isAccountState } from './accounts.ts'
import type { PriceRates } from './costs.ts'
import { type GrantState, isGrantState } from './grants.ts'
import type { PrincipalSet } from './principal-sets.ts'
import { type MinProof, proofMembers } from './rule.ts'
import { isPriceRates } from './stated-prices.ts'
import {
  type BoundSession,
  type ConfigurationState,
  configurationStateOf,
  isText,
  isTexts,
  type OwnCas,
  type PrincipalState,
  previousCasOf,
  principalStateOf,
  type ReplayedTool,
  type ResourceState,
  resourceStateOf,
} from './states.ts'

type RecordOf<Value> = Readonly<Record<string, Value>>

/** Says what stands for ways in that are no principal's, and for named sets. */
export interface BoundState {
  /** The digest of the operator secret's hash. False: a row has changed it that does not say to what. */
  readonly secret: string | null | false
  readonly secret_is_disabled: boolean
  readonly signing_keys: readonly string[] | null
  readonly sessions: RecordOf<BoundSession>
  readonly sessions_of_nobody: readonly string[]
  readonly sets: RecordOf<string>
}

/** Says what decisions are judged by. */
export interface ReplayState extends BoundState, LimitsState {
  readonly principals: RecordOf<PrincipalRecord>
  readonly resources: RecordOf<ResourceRecord>
  /** Ordered by the rows that last named them. */
  readonly configurations: readonly (readonly [digest: string, configuration: ConfigurationRecord])[]
  readonly cas: RecordOf<string>
  readonly rotation: string | null
  readonly names_anchors: readonly string[]
  /** Rates by their names; absent: no row has stated any. */
  readonly prices?: RecordOf<PriceRates>
  /** The stops that have not ended; absent: none. */
  readonly stops?: StopScopes
  /** Keyed by id; absent: there is none. */
  readonly approvals?: RecordOf<ReplayedApproval>
  /** The grants of people that have not ended; absent: there is none. */
  readonly grants?: RecordOf<GrantState>
  /** The accounts at MCP servers that have not ended; absent: there is none. */
  readonly accounts?: RecordOf<AccountState>
  /** Subjects and resources of rows of version 1. */
  readonly old: readonly string[]
}

export interface OpenDecisions {
  /** Keyed by request. */
  readonly open: RecordOf<readonly [stream: string, seq: number, v: LeafVersion]>
  /** True: there were more than are followed. */
  readonly open_is_cut: boolean
}

/** All that the rows from a leaf on are judged by (docs/ledger.md#state). */
export interface LedgerState extends ReplayState, OpenDecisions {
  readonly v: 1
  /** The number of leaves that made it. */
  readonly leaf: number
  /** The last row of each stream. */
  readonly streams: RecordOf<readonly [seq: number, row_hash: string, v: LeafVersion]>
  /** The sets as `sets-start.json` has them. */
  readonly principal_sets: readonly PrincipalSet[]
}

/** The action of a row that says a state: `{leaf, sha256}`. */
export const STATE_ACTION = 'ledger.state'

/** A state, and the SHA-256 of its text. Hex. */
export interface DigestedState {
  readonly state: LedgerState
  readonly sha256: string
}

/** Writes the text of a state (RFC 8785), whose SHA-256 its row says. */
export function stateText(state: LedgerState): string {
  const text = canonicalize(state)
  if (text === undefined) throw new Error('a state has no text')
  return text
}

// The members have the names of those in rows: whatever reads a row reads them too.

type PrincipalMembers = Pick<PrincipalState, 'revision' | 'capabilities' | 'thumbprints'> & {
  readonly is_active: boolean
  readonly dpop_jkts: PrincipalState['dpopJkts']
  readonly spiffe_id?: string
}

type PrincipalRecord = {
  readonly states: readonly PrincipalMembers[]
  readonly bindings: RecordOf<string>
  readonly trusted_cas: readonly string[] | null
  /** True: a start has said them. */
  readonly trust_said: boolean
  readonly own_cas: OwnCas | null
  readonly ways_in: readonly string[] | null
}

type ResourceRecord = Pick<ResourceState, 'revision' | 'name' | 'enabled'> &
  Partial<ApprovalRule> & {
    readonly required_capability: string | null
    readonly tool_capabilities: RecordOf<string>
    readonly tools: RecordOf<
      readonly [state: ReplayedTool['state'], digest: string | null, pending: string | null]
    >
    readonly fields: RecordOf<string>
    /** Absent, as the other: what it is of most. */
    readonly min_proof?: MinProof
    readonly tool_min_proof?: RecordOf<MinProof>
  }

type ConfigurationRecord = Pick<ConfigurationState, 'checks'> & {
  readonly egress_dpop_mode: string
  readonly no_downgrade: boolean
  readonly enforce_tools_call: boolean
  readonly people?: { readonly llm: MinProof }
}

export const principalMembers = ({
  spiffeId,
  isActive,
  dpopJkts,
  ...state
}: PrincipalState): PrincipalMembers => ({
  ...state,
  is_active: isActive,
  dpop_jkts: dpopJkts,
  ...(spiffeId !== null && { spiffe_id: spiffeId }),
})

export const resourceMembers = (
  { requiredCapability, toolCapabilities, toolApprovals, minProof, toolMinProof, ...state }: ResourceState,
  tools: ReadonlyMap<string, ReplayedTool>,
  fields: RecordOf<string>,
): ResourceRecord => ({
  ...state,
  required_capability: requiredCapability,
  tool_capabilities: toolCapabilities,
  ...(toolApprovals !== undefined && { tool_approvals: toolApprovals }),
  tools: Object.fromEntries(
    [...tools].map(([tool, { state, digest, pending }]) => [tool, [state, digest, pending] as const]),
  ),
  fields,
  ...proofMembers({ min_proof: minProof, tool_min_proof: toolMinProof }),
})

export const configurationMembers = ({
  mode,
  noDowngrade,
  enforceToolsCall,
  checks,
  llmProof,
}: ConfigurationState): ConfigurationRecord => ({
  egress_dpop_mode: mode,
  no_downgrade: noDowngrade,
  enforce_tools_call: enforceToolsCall,
  checks,
  ...(llmProof && { people: { llm: llmProof } }),
})

/** Tells a state by its types. Does NOT say that it is written as {@link stateText} writes it. */
export function isLedgerState(value: unknown): value is LedgerState {
  if (!isObject(value) || value.v !== 1) return false
  return Object.entries(MEMBERS).every(([name, isOne]) => isOne(value[name])) && isLimitsState(value)
}

const isFlag = (value: unknown): boolean => typeof value === 'boolean'
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0
const isVersion = (value: unknown): boolean => value === 1 || value === 2
const orNull = (isOne: (value: unknown) => boolean) => (value: unknown) => value === null || isOne(value)
const isTextOrNull = orNull(isText)
const listOf = (isOne: (value: unknown) => boolean) => (value: unknown) =>
  Array.isArray(value) && value.every(isOne)
const recordOf = (isOne: (value: unknown) => boolean) => (value: unknown) =>
  isObject(value) && Object.values(value).every(isOne)
const tupleOf =
  (...types: readonly ((value: unknown) => boolean)[]) =>
  (value: unknown) =>
    Array.isArray(value) && value.length === types.length && types.every((isOne, at) => isOne(value[at]))

const isOwnCas = (value: unknown): boolean =>
  isObject(value) &&
  isTexts(value.digests) &&
  (value.previous === null || previousCasOf(value.previous) !== null)

const isPrincipal = (value: unknown): boolean =>
  isObject(value) &&
  Array.isArray(value.states) &&
  value.states.length > 0 &&
  value.states.every((state) => isObject(state) && principalStateOf(state) !== null) &&
  recordOf(isText)(value.bindings) &&
  orNull(isTexts)(value.trusted_cas) &&
  isFlag(value.trust_said) &&
  orNull(isOwnCas)(value.own_cas) &&
  orNull(isTexts)(value.ways_in)

const isToolState = (value: unknown): boolean =>
  value === 'approved' || value === 'quarantined' || value === 'gone'

const isResource = (value: unknown): boolean =>
  isObject(value) &&
  resourceStateOf(value) !== null &&
  recordOf(tupleOf(isToolState, isTextOrNull, isTextOrNull))(value.tools) &&
  recordOf(isText)(value.fields)

const isSession = (value: unknown): boolean =>
  isObject(value) && isTextOrNull(value.who) && isText(value.until)

const isPrincipalSet = (value: unknown): boolean =>
  isObject(value) &&
  isText(value.principal) &&
  isText(value.row) &&
  Number.isSafeInteger(value.revision) &&
  isFlag(value.is_active) &&
  Array.isArray(value.capabilities)

const MEMBERS: RecordOf<(value: unknown) => boolean> = {
  leaf: isCount,
  streams: recordOf(tupleOf(isCount, isText, isVersion)),
  open: recordOf(tupleOf(isText, isCount, isVersion)),
  open_is_cut: isFlag,
  principals: recordOf(isPrincipal),
  principal_sets: listOf(isPrincipalSet),
  resources: recordOf(isResource),
  configurations: listOf(tupleOf(isText, (value) => isObject(value) && configurationStateOf(value) !== null)),
  cas: recordOf(isText),
  rotation: isTextOrNull,
  names_anchors: isTexts,
  grants: (value) => value === undefined || recordOf(isGrantState)(value),
  accounts: (value) => value === undefined || recordOf(isAccountState)(value),
  prices: (value) => value === undefined || recordOf(isPriceRates)(value),
  stops: (value) => value === undefined || recordOf((scope) => stopScopeOf(scope) !== null)(value),
  approvals: (value) => value === undefined || recordOf(isReplayedApproval)(value),
  old: isTexts,
  secret: (value) => value === false || isTextOrNull(value),
  secret_is_disabled: isFlag,
  signing_keys: orNull(isTexts),
  sessions: recordOf(isSession),
  sessions_of_nobody: isTexts,
  sets: recordOf(isText),
}
