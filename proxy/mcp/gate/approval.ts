import { createHmac, randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Database } from '../../../db/database.ts'
import type { ApproverKind } from '../../../db/ledger/approvals/approval-rule.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import {
  approvalDetail,
  approvalStands,
  approvalsOfCall,
  findApproval,
  hasRoomForApproval,
  insertApproval,
  isApprovalUsed,
  roomForApproval,
  type StoredApproval,
  useApproval,
} from '../../../db/mcp/approvals.ts'
import { isObject } from '../../../db/support/json.ts'
import { timestamp } from '../../../db/support/statement.ts'
import type { CallApproval } from '../../../plugins/audit/audit.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import type { CallCommitments } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { sealBytes } from '../../../plugins/secrets/seal.ts'
import { argumentsKey, callDigestKey } from '../pinning/approval-keys.ts'
import {
  type ApprovalOpening,
  ApprovalRequired,
  asksUrl,
  type UrlQuestion,
} from '../protocol/approval-required.ts'
import { canonicalizeArguments, paramsInvalid } from '../protocol/json-text.ts'
import { META_KEYS } from '../protocol/versions.ts'
import type { PinnedTool } from '../state/registry.ts'
import { type RequestStates, stateRefused } from '../state/request-state.ts'
import { type ApprovalFacts, approvalStateOwner } from './checks.ts'

/** The most bytes of the arguments of a call that somebody must read first, in canonical form. */
export const MAX_APPROVED_BYTES = 65_536

/** Names a call: the same for the same call of the same principal, and for nobody else. Lower-case hex. */
function callDigest(
  commitments: Pick<CallCommitments, 'derived'>,
  { resource, tool }: PinnedTool,
  args: string,
): string {
  const { resource_id: id } = resource
  const text = `{"arguments":${args},"pin":${JSON.stringify(tool.digest)},"resource":${JSON.stringify(id)},"tool":${JSON.stringify(tool.name)}}`
  return createHmac('sha256', callDigestKey(commitments)).update(`approval\n${text}`).digest('hex')
}

/** The page on which an approval is given: of the dashboard, or of people for their own calls. */
const approvalPageUrl = (
  { urls, peopleUrls }: Pick<ApprovalDependencies, 'urls' | 'peopleUrls'>,
  { approver, approval_id: id }: StoredApproval,
): string =>
  approver === 'person'
    ? `${peopleUrls()[0] ?? ''}/account/approvals/${id}`
    : `${urls()[0] ?? ''}/proxy/approvals/${id}`

export interface ApprovalDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly states: RequestStates
  /** The base URLs of the pages. */
  readonly urls: () => readonly string[]
  /** The one URL of the listener for people; none if it is closed. */
  readonly peopleUrls: () => readonly string[]
  readonly configDigest: string
  readonly clock: () => number
}

/** Judges a call that somebody must approve. Refuses with {@link ApprovalRequired}. */
export type ApprovalJudge = (
  facts: ApprovalFacts,
  pinned: PinnedTool,
  by: ApproverKind,
) => Promise<CallApproval>

/** The first pause between two looks at an approval that a call is held for, and the longest. ms. */
const FIRST_LOOK_MS = 100
const MAX_LOOK_MS = 1_000

export function approvalJudge(dependencies: ApprovalDependencies): ApprovalJudge {
  const isUsed = isApprovalUsed(dependencies.database)
  return (facts, pinned, by) => new WaitingCall(dependencies, isUsed, facts, pinned, by).judge()
}

class WaitingCall {
  readonly #of: ApprovalDependencies
  readonly #isUsed: (id: string) => Promise<boolean>
  readonly #facts: ApprovalFacts
  readonly #pinned: PinnedTool
  readonly #by: ApproverKind
  readonly #args: string
  readonly #digest: string

  constructor(
    dependencies: ApprovalDependencies,
    isUsed: (id: string) => Promise<boolean>,
    facts: ApprovalFacts,
    pinned: PinnedTool,
    by: ApproverKind,
  ) {
    this.#of = dependencies
    this.#isUsed = isUsed
    this.#facts = facts
    this.#pinned = pinned
    const isPerson = facts.granted.principal.type === 'user' && dependencies.peopleUrls().length > 0
    this.#by = by === 'person' && isPerson ? 'person' : 'operator'
    // Asked before they are written: that would hold the loop.
    if ((facts.largeParams?.bytes ?? 0) > MAX_APPROVED_BYTES) throw tooLong()
    this.#args = canonicalizeArguments(facts.toolCall.arguments ?? {})
    if (Buffer.byteLength(this.#args) > MAX_APPROVED_BYTES) throw tooLong()
    this.#digest = callDigest(facts.commitments, pinned, this.#args)
  }

  async judge(): Promise<CallApproval> {
    const { approvalState, consentAsked } = this.#facts
    if (approvalState?.kind === 'continued') return this.#continued(approvalState.id)
    if (approvalState === null && !consentAsked && this.#facts.message.params.inputResponses !== undefined)
      throw paramsInvalid(
        'This call must be approved first: send it without inputResponses, or with the requestState that goes with them.',
      )
    const found = await this.#find()
    if (found.approved) return this.#approved(found.approved, false)
    if (found.declined) throw this.#declined(found.declined)
    const until = this.#facts.at + this.#pinned.resource.approval_wait_s * 1_000
    if (this.#of.clock() < until) return this.#hold(found.open ?? (await this.#open()), until)
    if (found.open) throw this.#required(found.open, null)
    throw await this.#newlyRequired()
  }

  /** Finds what stands for this very call now: of one kind alone. */
  async #find(): Promise<{ readonly [Status in 'approved' | 'declined' | 'open']?: StoredApproval }> {
    const { principal } = this.#facts.granted
    const all = await approvalsOfCall(this.#of.database, { ref: principal.ref, digest: this.#digest })
    for (const one of all.filter((approval) => this.#isOfNow(approval))) {
      if (one.status === 'open' || one.status === 'declined') return { [one.status]: one }
      if (one.status === 'approved' && !(await this.#isUsed(one.approval_id))) return { approved: one }
    }
    return {}
  }

  #isOfNow({ resource_revision: revision, pin, expires_at: until }: StoredApproval): boolean {
    const { resource, tool } = this.#pinned
    return revision === resource.revision && pin === tool.digest && this.#of.clock() < Date.parse(until)
  }

  #approved(approval: StoredApproval, late: boolean): CallApproval {
    const { database, clock } = this.#of
    return {
      id: approval.approval_id,
      digest: this.#digest,
      continued: false,
      late,
      assertions: [approvalStands(database, approval, clock())],
      statements: [useApproval(database, approval)],
      isUsed: () => this.#isUsed(approval.approval_id),
    }
  }

  /** Lets the next round of a call pass that was approved, while the approval lasts. */
  async #continued(id: string): Promise<CallApproval> {
    const { database, clock } = this.#of
    const { principal } = this.#facts.granted
    const approval = await findApproval(database, id)
    const isSame =
      approval?.call_digest === this.#digest &&
      approval.principal_ref === principal.ref &&
      approval.status === 'approved' &&
      this.#isOfNow(approval) &&
      (await this.#isUsed(id))
    if (!approval || !isSame) throw stateRefused()
    return {
      ...{ id, digest: this.#digest, continued: true, late: false },
      assertions: [approvalStands(database, approval, clock())],
      statements: [],
      isUsed: () => Promise.resolve(false),
    }
  }

  /** Holds the call until somebody has decided, or the time is over. */
  async #hold(open: StoredApproval, until: number): Promise<CallApproval> {
    const { database, clock } = this.#of
    const { hangup } = this.#facts
    let pause = FIRST_LOOK_MS
    for (;;) {
      const now = clock()
      const found = await findApproval(database, open.approval_id)
      if (found?.status === 'approved') return this.#approved(found, true)
      if (found?.status === 'declined') throw this.#declined(found)
      if (found?.status !== 'open' || now >= Date.parse(open.expires_at)) throw await this.#newlyRequired()
      if (now >= until) throw this.#required(open, null)
      if (hangup.gone) throw hangup.reason instanceof Refusal ? hangup.reason : new Refusal('client_gone')
      await delay(Math.min(pause, until - now), undefined, { signal: hangup.signal }).catch(() => {})
      pause = Math.min(2 * pause, MAX_LOOK_MS)
    }
  }

  /** Makes an open approval at once, for a call that is held. */
  async #open(): Promise<StoredApproval> {
    const { approval, opening } = await this.#opening()
    try {
      await this.#of.ledger.commit(opening)
      return approval
    } catch (error) {
      if (!(error instanceof LedgerError) || !OVERTAKEN.has(error.code)) throw error
      // The same call came at the same time, or took the last room.
      const { open } = await this.#find()
      if (open) return open
      throw this.#noRoom()
    }
  }

  async #newlyRequired(): Promise<Refusal> {
    const { approval, opening } = await this.#opening()
    return this.#required(approval, opening)
  }

  async #opening(): Promise<{ readonly approval: StoredApproval; readonly opening: ApprovalOpening }> {
    const { database, clock, configDigest } = this.#of
    const { principal } = this.#facts.granted
    const at = clock()
    if (!(await hasRoomForApproval(database, principal.ref, at))) throw this.#noRoom()
    const approval = this.#newApproval(at)
    const row = serviceEntry('approval.requested', 'success', approvalDetail(approval), at, configDigest)
    const opening = {
      assertions: [roomForApproval(database, principal.ref, at)],
      statements: [insertApproval(database, approval)],
      entries: [
        {
          ...row,
          detail: { ...row.detail, request: this.#facts.id },
          principal_id: principal.ref,
          principal_type: principal.type,
        },
      ],
    }
    return { approval, opening }
  }

  #newApproval(at: number): StoredApproval {
    const { granted, commitments } = this.#facts
    const { resource, tool } = this.#pinned
    const { principal } = granted
    const id = `apr_${randomBytes(12).toString('hex')}`
    return {
      approval_id: id,
      principal_type: principal.type,
      principal_id: principal.id,
      principal_ref: principal.ref,
      request_id: this.#facts.id,
      client: this.#client(),
      resource_id: resource.resource_id,
      resource_revision: resource.revision,
      resource_name: resource.name,
      tool: tool.name,
      pin: tool.digest ?? '',
      approver: this.#by,
      call_digest: this.#digest,
      arguments: sealBytes(argumentsKey(commitments), this.#args, Buffer.from(id)).toString('base64'),
      arguments_bytes: Buffer.byteLength(this.#args),
      status: 'open',
      created_at: timestamp(at),
      expires_at: timestamp(at + resource.approval_ttl_s * 1_000),
      decided_by: null,
      decided_at: null,
      via: null,
      reason: null,
    }
  }

  #client(): string | null {
    const { message, session } = this.#facts
    const info = session?.clientInfo ?? message.meta[META_KEYS.clientInfo]
    if (!isObject(info)) return null
    const words = [info.name, info.version].filter((word) => typeof word === 'string').join(' ')
    return words.toWellFormed().replaceAll('\0', '').slice(0, 200) || null
  }

  #required(approval: StoredApproval, opening: ApprovalOpening | null): Refusal {
    const { approval_id: id, expires_at: until } = approval
    const url = approvalPageUrl(this.#of, approval)
    return new ApprovalRequired({
      message:
        `This call needs a person's approval: ${url} shows it. It has not been made. ` +
        `Tell your user, and once it is approved send the identical call again, until ${until}.`,
      detail: { approval: id, url, expires_at: until },
      opening,
      question: this.#question(id, url),
    })
  }

  /** A client is asked to open the page once: if nothing is decided by its next call, that is an error. */
  #question(id: string, url: string): UrlQuestion | null {
    const { message, session, granted, approvalState } = this.#facts
    if (approvalState !== null || !asksUrl({ message, session })) return null
    const { era } = message
    const owner = approvalStateOwner(granted.principal, message, this.#pinned)
    return {
      name: 'approval',
      era,
      id,
      url,
      state: era === 'modern' ? this.#of.states.seal(id, owner) : null,
    }
  }

  #declined(approval: StoredApproval): Refusal {
    const { approval_id: id, reason, expires_at: until } = approval
    const why = reason === null ? 'and gave no reason' : `and said: ${reason}`
    return new ApprovalRequired({
      message: `A person declined this call, ${why}. It has not been made. Do not send it again before ${until}.`,
      detail: {
        approval: id,
        url: approvalPageUrl(this.#of, approval),
        expires_at: until,
        declined: reason ?? '',
      },
    })
  }

  #noRoom(): Refusal {
    return new ApprovalRequired({
      message:
        "This call needs a person's approval, and too many calls wait for one already. Try again once those are decided.",
      detail: {},
    })
  }
}

const OVERTAKEN: ReadonlySet<string> = new Set(['stale', 'conflict'])

const tooLong = (): Refusal =>
  paramsInvalid(
    `arguments are longer than ${MAX_APPROVED_BYTES} bytes: nobody could read them before approving the call.`,
  )
