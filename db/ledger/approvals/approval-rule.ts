import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isInstant } from '../canonical/instant.ts'

/** The members of a row about an approval that the rule looks at. */
interface ApprovalRow {
  readonly principal_id: string | null
  /** RFC 3339. */
  readonly recorded_at: string
}

/** The members of a call's row that say whether it may use one. `detail`: JSON. */
interface DecidedRow {
  readonly action: string
  readonly status: string
  readonly detail: string
}

/** The kind of approver of a call: an operator, or the person whose call it is. */
export type ApproverKind = 'operator' | 'person'

/** A resource's rule about approvals (docs/approvals.md). */
export interface ApprovalRule {
  /** For every tool not in `tool_approvals`; null: nobody. */
  readonly approval: ApproverKind | null
  /** Keyed by tool name; null: nobody. */
  readonly tool_approvals: ToolApprovals
}

export type ToolApprovals = Readonly<Record<string, ApproverKind | null>>

export const NO_TOOL_APPROVALS: ToolApprovals = Object.freeze(Object.create(null))

export const isApproverKind = (value: unknown): value is ApproverKind =>
  value === 'operator' || value === 'person'

export const isToolApprovals = (value: unknown): value is ToolApprovals =>
  isObject(value) && Object.values(value).every((one) => one === null || isApproverKind(one))

/** Says a rule as rows have it: only where it asks for something. */
export const statedRule = ({ approval, tool_approvals: own }: ApprovalRule): Partial<ApprovalRule> => ({
  ...(approval !== null && { approval }),
  ...(Object.keys(own).length > 0 && { tool_approvals: own }),
})

/** An approval as rows have left it; one that was declined, or is over, is left out. */
export interface ReplayedApproval {
  readonly subject: string
  readonly resource: string
  readonly revision: number
  /** `<resource>.<tool>`. */
  readonly tool: string
  readonly pin: string
  readonly call_digest: string
  readonly expires_at: string
  readonly status: 'open' | 'approved' | 'used'
  /** Absent: an operator. */
  readonly approver?: 'person'
}

/** The time after its end in which an approval is kept: a call may have come before it. ms. */
const REMEMBERED_MS = 3_600_000

const isString = (value: unknown): value is string => typeof value === 'string'

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 1

const STATUSES: ReadonlySet<unknown> = new Set(['open', 'approved', 'used'])

export const isReplayedApproval = (value: unknown): boolean =>
  isObject(value) &&
  ['subject', 'resource', 'tool', 'pin', 'call_digest', 'expires_at'].every((name) =>
    isString(value[name]),
  ) &&
  isCount(value.revision) &&
  STATUSES.has(value.status) &&
  isStatedApprover(value.approver)

const isStatedApprover = (value: unknown): value is 'person' | undefined =>
  value === undefined || value === 'person'

/** Follows the approvals of calls over the rows (docs/ledger.md#approvals). */
export class ApprovalReplay {
  readonly #all: Map<string, ReplayedApproval>

  constructor(said: Readonly<Record<string, ReplayedApproval>> = {}) {
    this.#all = new Map(Object.entries(said))
  }

  /** Null: there is none. */
  state(): Readonly<Record<string, ReplayedApproval>> | null {
    return this.#all.size === 0 ? null : Object.fromEntries(this.#all)
  }

  find(id: string): ReplayedApproval | undefined {
    return this.#all.get(id)
  }

  /** Takes in a row of an approval. Returns half a sentence if it does not follow from those before it. */
  apply(what: string, row: ApprovalRow, detail: UnknownRecord): string | null {
    const { approval: id } = detail
    if (!isString(id)) return 'does not say which approval it is about'
    if (what === 'requested') return this.#request(id, row, detail)
    const known = this.#all.get(id)
    if (known?.status !== 'open') return `is about the approval ${id}, which is not open`
    if (what !== 'approved') this.#all.delete(id)
    else this.#all.set(id, { ...known, status: 'approved' })
    if (what !== 'approved') return null
    if (row.recorded_at >= known.expires_at) return 'approves a call whose time is over'
    return wrongApprover(known, row, detail)
  }

  #request(id: string, { recorded_at: at }: ApprovalRow, detail: UnknownRecord): string | null {
    const { subject, resource, tool, pin, call_digest: digest, expires_at: until, approver } = detail
    for (const [name, { expires_at: end }] of this.#all)
      if (Date.parse(end) + REMEMBERED_MS < Date.parse(at)) this.#all.delete(name)
    const isWhole = isString(subject) && isString(tool) && isString(pin) && isString(digest)
    if (!isWhole || !isString(until) || !isInstant(until) || !isObject(resource) || !isString(resource.id))
      return 'does not say which call it is about'
    const { id: of, revision } = resource
    if (!isCount(revision) || !isStatedApprover(approver)) return 'does not say which call it is about'
    const isKnown = this.#all.has(id)
    this.#all.set(id, {
      ...{ subject, resource: of, revision, tool, pin, call_digest: digest, expires_at: until },
      status: 'open',
      ...(approver && { approver }),
    })
    return isKnown ? `asks for the approval ${id}, which there is already` : null
  }

  /** Takes in the use of an approval, by the detail of an allowed decision. */
  use({ authority }: UnknownRecord): void {
    const id = isObject(authority) ? authority.approval : undefined
    const known = isString(id) ? this.#all.get(id) : undefined
    if (known && isString(id)) this.#all.set(id, { ...known, status: 'used' })
  }
}

/** A person approves their own calls where the rule says so, in a session of their own; an operator all others. */
function wrongApprover(
  { subject, approver }: ReplayedApproval,
  { principal_id: who }: ApprovalRow,
  { via }: UnknownRecord,
): string | null {
  if (approver !== 'person') return who === subject ? 'approves a call of the same principal' : null
  return who === subject && via === 'oidc' ? null : 'approves a call that its own person alone may approve'
}

/** Tells, by its text alone, if an allowed decision may name an approval. */
export const mayUseApproval = ({ action, status, detail }: DecidedRow): boolean =>
  action === 'mcp_tools_call' && status === 'allowed' && detail.includes('"approval":"')
