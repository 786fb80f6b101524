import { isObject, type UnknownRecord } from '../../support/json.ts'
import {
  type ApproverKind,
  isApproverKind,
  isToolApprovals,
  type ToolApprovals,
} from '../approvals/approval-rule.ts'
import { isInstant } from '../canonical/instant.ts'
import { type CallGrade, type DpopMode, type HonouredThumbprint, isMinProof, type MinProof } from './rule.ts'

export interface PrincipalState {
  readonly revision: number
  readonly capabilities: readonly string[]
  readonly isActive: boolean
  readonly thumbprints: readonly HonouredThumbprint[]
  readonly dpopJkts: readonly HonouredThumbprint[]
  readonly spiffeId: string | null
}

export interface ResourceState {
  readonly revision: number
  readonly name: string
  readonly requiredCapability: string | null
  readonly toolCapabilities: Readonly<Record<string, string>>
  readonly enabled: boolean
  /** Absent: no call of it must be approved. */
  readonly approval?: ApproverKind | null
  readonly toolApprovals?: ToolApprovals
  readonly minProof: MinProof
  readonly toolMinProof: Readonly<Record<string, MinProof>>
}

export interface CheckDigest {
  readonly name: string
  readonly digest: string | null
  readonly shadow: boolean
}

export interface ConfigurationCheck extends CheckDigest {
  /** Digest of the options in its file; null in rows without it. */
  readonly options: string | null
}

export interface ConfigurationState {
  readonly mode: DpopMode
  readonly noDowngrade: boolean
  readonly enforceToolsCall: boolean
  readonly checks: readonly ConfigurationCheck[]
  /** The least proof that LLM calls take; absent: a certificate. */
  readonly llmProof?: MinProof
}

/** The digests of the CAs of a bundle before, and the end of its grace. */
export type PreviousCas = readonly [digests: readonly string[], until: string]

/** The CAs of an agent's own. */
export interface OwnCas {
  readonly digests: readonly string[]
  /** Null if no row has said them. */
  readonly previous: readonly PreviousCas[] | null
}

export interface ReplayedTool {
  readonly state: 'approved' | 'quarantined' | 'gone'
  /** The approved digest; null of one that was never approved. */
  readonly digest: string | null
  /** The digest that waits; null if none does. */
  readonly pending: string | null
}

/** A browser's session: whose it is (null: by the operator secret), and its end. RFC 3339. */
export interface BoundSession {
  readonly who: string | null
  readonly until: string
}

// Each returns null if the row does not carry all of it. Strict: a member of another type is a forged one.

export function principalStateOf(detail: UnknownRecord): PrincipalState | null {
  const { revision, capabilities, is_active: isActive, spiffe_id: spiffeId } = detail
  const [thumbprints, dpopJkts] = [pinnedOf(detail.thumbprints), pinnedOf(detail.dpop_jkts)]
  if (!isRevision(revision) || !isTexts(capabilities) || typeof isActive !== 'boolean') return null
  if (!thumbprints || !dpopJkts || !(spiffeId === undefined || isText(spiffeId))) return null
  return { revision, capabilities, isActive, thumbprints, dpopJkts, spiffeId: spiffeId ?? null }
}

export function resourceStateOf(detail: UnknownRecord): ResourceState | null {
  const { revision, name, enabled } = detail
  const { required_capability: requiredCapability, tool_capabilities: own } = detail
  const { approval, tool_approvals: toolApprovals } = detail
  if (!isRevision(revision) || !isText(name) || typeof enabled !== 'boolean') return null
  if (!(requiredCapability === null || isText(requiredCapability)) || !isTextMap(own)) return null
  if (!(approval === undefined || isApproverKind(approval))) return null
  if (!(toolApprovals === undefined || isToolApprovals(toolApprovals))) return null
  // Absent in the rows of resources that demand a certificate, as all did once.
  const { min_proof: minProof = 'certificate', tool_min_proof: toolMinProof = {} } = detail
  if (!isMinProof(minProof) || !isProofMap(toolMinProof)) return null
  return {
    ...{ revision, name, requiredCapability, toolCapabilities: own, enabled, minProof, toolMinProof },
    ...(approval !== undefined && { approval }),
    ...(toolApprovals !== undefined && { toolApprovals }),
  }
}

export function configurationStateOf(detail: UnknownRecord): ConfigurationState | null {
  const { enforce_tools_call: enforceToolsCall, checks } = detail
  const mode = modeOf(detail)
  const llmProof = llmProofOf(detail)
  if (!mode || llmProof === null || typeof enforceToolsCall !== 'boolean' || !Array.isArray(checks))
    return null
  const read = checks.map(configuredOf)
  return read.every((check) => check !== null)
    ? { ...mode, enforceToolsCall, checks: read, ...(llmProof && { llmProof }) }
    : null
}

/** Reads the grade that the door of people takes for LLM calls; undefined: none; null: it is not well-formed. */
function llmProofOf({ people }: UnknownRecord): CallGrade | undefined | null {
  if (people === undefined) return undefined
  if (!isObject(people)) return null
  const { llm } = people
  if (llm === 'off') return undefined
  return llm === 'key' || llm === 'none' ? llm : null
}

function configuredOf(value: unknown): ConfigurationCheck | null {
  const check = isObject(value) && value.shadow !== undefined ? checkDigestOf(value) : null
  return check && isObject(value) ? { ...check, options: isText(value.options) ? value.options : null } : null
}

export function modeOf(value: unknown): Pick<ConfigurationState, 'mode' | 'noDowngrade'> | null {
  if (!isObject(value)) return null
  const { egress_dpop_mode: mode, no_downgrade: noDowngrade } = value
  const isMode = mode === 'off' || mode === 'optional' || mode === 'required'
  return isMode && typeof noDowngrade === 'boolean' ? { mode, noDowngrade } : null
}

export function checkDigestOf(value: unknown): CheckDigest | null {
  if (!isObject(value)) return null
  const { name, digest, shadow = false } = value
  const isNamed = isText(name) && (digest === null || isText(digest))
  return isNamed && typeof shadow === 'boolean' ? { name, digest, shadow } : null
}

/** Reads pairs of texts; none if the member is absent; null if it is anything else. */
export function pairsOf(value: unknown = []): readonly (readonly [string, string])[] | null {
  if (!Array.isArray(value)) return null
  const isPair = (pair: unknown): pair is [string, string] => isTexts(pair) && pair.length === 2
  return value.every(isPair) ? value : null
}

const isPrevious = (value: unknown): value is PreviousCas =>
  Array.isArray(value) && value.length === 2 && isTexts(value[0]) && isText(value[1])

export const previousCasOf = (value: unknown): readonly PreviousCas[] | null =>
  Array.isArray(value) && value.every(isPrevious) ? value : null

function pinnedOf(value: unknown): readonly HonouredThumbprint[] | null {
  if (!Array.isArray(value)) return null
  return value.every(isPinned) ? value : null
}

function isPinned(value: unknown): value is HonouredThumbprint {
  if (!Array.isArray(value) || value.length !== 2 || !isText(value[0])) return false
  return value[1] === null || (isText(value[1]) && isInstant(value[1]))
}

export const isText = (value: unknown): value is string => typeof value === 'string'

export const isTexts = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every(isText)

export const isRevision = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 1

const isTextMap = (value: unknown): value is Readonly<Record<string, string>> =>
  isObject(value) && Object.values(value).every(isText)

const isProofMap = (value: unknown): value is Readonly<Record<string, MinProof>> =>
  isObject(value) && Object.values(value).every(isMinProof)

/** The most that a text of a row has (docs/ledger.md#leaf): a longer one was cut. */
const MAX_TEXT = 1_024

/** A value as a text that can be compared, as a row has it; the order of a list says nothing. */
export const listText = (value: unknown): string =>
  Array.isArray(value) ? JSON.stringify(value.map(String).toSorted()) : String(value).slice(0, MAX_TEXT)
