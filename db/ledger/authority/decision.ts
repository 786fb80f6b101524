import { isObject, type UnknownRecord } from '../../support/json.ts'
import type { StoredRow } from '../record/leaf.ts'
import type { LedgerReplay } from './replay.ts'
import type { CallGrade } from './rule.ts'
import {
  type CheckDigest,
  type ConfigurationState,
  checkDigestOf,
  isRevision,
  isText,
  isTexts,
  modeOf,
  type PrincipalState,
} from './states.ts'

export interface RecordedCheck extends CheckDigest {
  readonly verdict: string
}

const VERDICTS: ReadonlySet<unknown> = new Set(['pass', 'refuse', 'failed'])

export interface RecordedAuthority extends NonNullable<ReturnType<typeof modeOf>> {
  readonly demanded: readonly string[]
  /** Null if it names none. */
  readonly revision: number | null
  /** Null: no token narrowed the call. */
  readonly scope: readonly string[] | null
  readonly tokenBound: boolean
  readonly resource: { readonly id: string; readonly revision: number } | null
  readonly binding: string | null
  readonly pin: string | null
  /** Null if it names none. `continued`: a further round of a call that has used it. */
  readonly approval: { readonly id: string; readonly digest: string; readonly continued: boolean } | null
  readonly checks: readonly RecordedCheck[]
  /** The digest of the CA that let an SVID in; null if it names none. */
  readonly anchor: string | null
  /** The grade and the grant of a call without a certificate; both null if it names none. */
  readonly bound: CallGrade | null
  readonly grant: string | null
}

export interface RecordedDecision {
  readonly row: StoredRow
  readonly detail: UnknownRecord
  readonly allowed: boolean
  /** ms since the epoch. */
  readonly at: number
  /** Half a sentence: why the row cannot be a decision, whatever it rests on; null if it can. */
  readonly fault: string | null
  /** Null if the row names none, or one that is not well-formed. */
  readonly authority: RecordedAuthority | null
  readonly namesRevision: boolean
  readonly reason: string | null
  readonly refusedBy: string | null
  /** The stop that it names; null if it names none. */
  readonly stop: string | null
  /** The row's own value; undefined if it has none. */
  readonly requiredCapability: unknown
  readonly path: string
  /** The number of refusals that the row stands for; null if it stands for itself. */
  readonly summarised: number | null
}

export interface ReplayedCall {
  readonly decision: RecordedDecision
  readonly authority: RecordedAuthority
  readonly configuration: ConfigurationState
  readonly principal: PrincipalState
  readonly bindings: ReadonlyMap<string, string>
  readonly replay: Pick<LedgerReplay, 'grants' | 'resources' | 'stops'>
}

export class RowContradiction extends Error {}

export class NotRecomputable extends Error {}

const DECISION = /^(?:egress_llm_chat|mcp_[^.]*)$/

export const isCallAction = (action: string): boolean => DECISION.test(action)

export const isDecisionRow = ({ action, status }: StoredRow): boolean =>
  (status === 'allowed' || status === 'denied') && isCallAction(action)

export function recordedDecisionOf(row: StoredRow, detail: UnknownRecord): RecordedDecision {
  const { authority, reason, refused_by: by, required_capability: required, path, stop, summarised } = detail
  return {
    row,
    detail,
    allowed: row.status === 'allowed',
    at: Date.parse(row.recorded_at),
    fault: faultOf(row, detail),
    authority: authorityOf(authority, row),
    namesRevision: isObject(authority) && authority.revision !== undefined,
    reason: textOrNull(reason),
    refusedBy: textOrNull(by),
    stop: textOrNull(stop),
    requiredCapability: required,
    path: textOrNull(path) ?? '',
    summarised: summarised === undefined ? null : (countOf(summarised) ?? 1),
  }
}

function faultOf(
  { status, request_id: id }: StoredRow,
  { reason, summarised }: UnknownRecord,
): string | null {
  if (summarised !== undefined && countOf(summarised) === null)
    return 'is a summary that does not say of how many'
  if (status !== 'allowed') return null
  if (summarised !== undefined) return 'is allowed, but only refusals have summaries'
  if (reason !== undefined) return 'is allowed, but has the reason of a refusal'
  return id === null ? 'is allowed, but is of no request' : null
}

const countOf = (value: unknown): number | null =>
  isObject(value) && isRevision(value.count) ? value.count : null

function authorityOf(value: unknown, { action }: StoredRow): RecordedAuthority | null {
  if (!isObject(value)) return null
  const { demanded, revision, scope, token = false, anchor } = value
  const [mode, checks, reached] = [modeOf(value.mode), checksOf(value.checks), reachedOf(value)]
  const approval = approvalOf(value)
  if (!mode || !checks || !reached || !isTexts(demanded) || typeof token !== 'boolean') return null
  if (!(revision === undefined || isRevision(revision)) || !(scope === undefined || isTexts(scope)))
    return null
  if (!isOptionalText(anchor) || approval === undefined) return null
  if (reached.resource && !action.startsWith('mcp_')) return null
  const ofGrant = grantOf(value)
  if (!ofGrant) return null
  const named = { demanded, revision: revision ?? null, scope: scope ?? null, tokenBound: token }
  return { ...mode, ...named, ...reached, ...ofGrant, checks, approval, anchor: anchor ?? null }
}

/** Reads the approval of a call; undefined if it is not well-formed. */
function approvalOf(value: UnknownRecord): RecordedAuthority['approval'] | undefined {
  const { approval: id, call_digest: digest, continued = false } = value
  if (id === undefined && digest === undefined && value.continued === undefined) return null
  const isWhole = isText(id) && isText(digest) && typeof continued === 'boolean'
  return isWhole ? { id, digest, continued } : undefined
}

/** Reads the grade and the grant; null if only one of them is there, or they are not well-formed. */
function grantOf({ bound, grant }: UnknownRecord): Pick<RecordedAuthority, 'bound' | 'grant'> | null {
  if (bound === undefined && grant === undefined) return { bound: null, grant: null }
  return isText(grant) && (bound === 'key' || bound === 'none') ? { bound, grant } : null
}

/** Reads the target of an MCP call; null if it is not well-formed. */
function reachedOf(value: UnknownRecord): Pick<RecordedAuthority, 'resource' | 'binding' | 'pin'> | null {
  const { resource, binding, pin } = value
  if (resource === undefined)
    return binding === undefined && pin === undefined ? { resource: null, binding: null, pin: null } : null
  if (!isObject(resource) || !isText(resource.id) || !isRevision(resource.revision)) return null
  if (!isOptionalText(binding) || !isOptionalText(pin)) return null
  const { id, revision } = resource
  return { resource: { id, revision }, binding: binding ?? null, pin: pin ?? null }
}

function checksOf(value: unknown = []): readonly RecordedCheck[] | null {
  if (!Array.isArray(value)) return null
  const read = value.map((asked: unknown) => {
    const check = checkDigestOf(asked)
    if (!check || !isObject(asked) || !isText(asked.verdict)) return null
    return VERDICTS.has(asked.verdict) ? { ...check, verdict: asked.verdict } : null
  })
  return read.every((check) => check !== null) ? read : null
}

const textOrNull = (value: unknown): string | null => (isText(value) ? value : null)

const isOptionalText = (value: unknown): value is string | undefined => value === undefined || isText(value)
