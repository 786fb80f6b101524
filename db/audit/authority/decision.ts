import { isObject, type Members } from '../../json.ts'
import type { StoredRow } from '../leaf.ts'
import { type CheckDigest, checkOf, isRevision, isText, isTexts, modeOf } from './states.ts'

/** What an operators' check said of a call. */
export interface AskedCheck extends CheckDigest {
  readonly verdict: string
}

/** What a decision row names (docs/ledger.md#authority). */
export interface Authority extends NonNullable<ReturnType<typeof modeOf>> {
  readonly demanded: readonly string[]
  readonly revision: number
  /** Null: no token narrowed the call. */
  readonly scope: readonly string[] | null
  readonly tokenBound: boolean
  readonly resource: { readonly id: string; readonly revision: number } | null
  readonly binding: string | null
  readonly pin: string | null
  readonly checks: readonly AskedCheck[]
}

/** A decision as its row says it. */
export interface Decision {
  readonly row: StoredRow
  readonly allowed: boolean
  /** ms since the epoch. */
  readonly at: number
  /** Null where the row names none, or one that is not well-formed. */
  readonly authority: Authority | null
  readonly reason: string | null
  readonly refusedBy: string | null
  readonly requiredCapability: string | null
  readonly path: string
  /** The number of refusals that the row stands for; null where it stands for itself. */
  readonly summarised: number | null
}

const DECISION = /^(?:egress_|mcp_(?!resource\.|binding\.))/

/** Returns whether rows of this action are about calls: decisions and outcomes. */
export const isOfCall = (action: string): boolean => DECISION.test(action)

export const isDecision = ({ action, status }: StoredRow): boolean =>
  (status === 'allowed' || status === 'denied') && isOfCall(action)

export function decisionOf(row: StoredRow, detail: Members): Decision {
  const { reason, refused_by: by, required_capability: required, path, summarised } = detail
  return {
    row,
    allowed: row.status === 'allowed',
    at: Date.parse(row.recorded_at),
    authority: authorityOf(detail.authority),
    reason: textOrNull(reason),
    refusedBy: textOrNull(by),
    requiredCapability: textOrNull(required),
    path: textOrNull(path) ?? '',
    summarised: isObject(summarised) ? Number(summarised.count) || 0 : null,
  }
}

function authorityOf(value: unknown): Authority | null {
  if (!isObject(value)) return null
  const { demanded, revision, scope = null, token = false, binding = null, pin = null } = value
  const [mode, resource, checks] = [modeOf(value.mode), resourceOf(value.resource), checksOf(value.checks)]
  if (!mode || resource === undefined || !checks || !isTexts(demanded) || !isRevision(revision)) return null
  if (!(scope === null || isTexts(scope)) || typeof token !== 'boolean') return null
  if (!(binding === null || isText(binding)) || !(pin === null || isText(pin))) return null
  return { ...mode, demanded, revision, scope, tokenBound: token, resource, binding, pin, checks }
}

function resourceOf(value: unknown): Authority['resource'] | undefined {
  if (value === undefined) return null
  if (!isObject(value) || !isText(value.id) || !isRevision(value.revision)) return undefined
  return { id: value.id, revision: value.revision }
}

function checksOf(value: unknown = []): readonly AskedCheck[] | null {
  if (!Array.isArray(value)) return null
  const read = value.map((asked: unknown) => {
    const check = checkOf(asked)
    return check && isObject(asked) && isText(asked.verdict) ? { ...check, verdict: asked.verdict } : null
  })
  return read.every((check) => check !== null) ? read : null
}

const textOrNull = (value: unknown): string | null => (isText(value) ? value : null)
