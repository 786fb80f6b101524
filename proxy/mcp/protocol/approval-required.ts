import type { LedgerUnit } from '../../../db/ledger/record/entry.ts'
import { isObject } from '../../../db/support/json.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { META_KEYS, type ProtocolEra } from './versions.ts'

/** The writes of a new request for an approval: they are in the unit of the refusal. */
export type ApprovalOpening = Pick<LedgerUnit, 'assertions' | 'statements' | 'entries'>

/** Asks the caller's client to open a page (MCP, elicitation in URL mode). */
export interface UrlQuestion {
  readonly name: 'account' | 'approval'
  readonly era: ProtocolEra
  readonly id: string
  readonly url: string
  /** Sealed: what a caller of the stateless era sends back with the same call. Null: of the older era. */
  readonly state: string | null
}

interface PageRequiredOptions {
  readonly message: string
  readonly detail: Readonly<Record<string, string>>
  readonly question?: UrlQuestion | null
}

interface ApprovalRequiredOptions extends PageRequiredOptions {
  /** Null: there is one already, or no room for one. */
  readonly opening?: ApprovalOpening | null
}

/** The refusal of a call for which somebody must do something on a page of ours first. */
export class PageRequired extends Refusal {
  readonly question: UrlQuestion | null

  constructor(reason: RefusalReason, { message, detail, question = null }: PageRequiredOptions) {
    super(reason, { message, detail })
    this.question = question
  }
}

/** The refusal of a call that somebody must approve first (docs/approvals.md). */
export class ApprovalRequired extends PageRequired {
  readonly opening: ApprovalOpening | null

  constructor({ opening = null, ...page }: ApprovalRequiredOptions) {
    super('approval_required', page)
    this.opening = opening
  }
}

/** The refusal of a call that needs an account at its server (docs/accounts.md). */
export class ConsentRequired extends PageRequired {
  constructor(page: PageRequiredOptions) {
    super('consent_required', page)
  }
}

interface QuestionedCaller {
  readonly message: { readonly era: ProtocolEra; readonly meta: Readonly<Record<string, unknown>> }
  readonly session: { readonly capabilities: Readonly<Record<string, unknown>> } | null
}

/** Tells whether a client says that it opens pages (MCP, elicitation in URL mode). */
export function asksUrl({ message: { era, meta }, session }: QuestionedCaller): boolean {
  const stated = era === 'modern' ? meta[META_KEYS.capabilities] : session?.capabilities
  const elicitation = isObject(stated) ? stated.elicitation : undefined
  return isObject(elicitation) && isObject(elicitation.url)
}

const URL_ELICITATION_REQUIRED = -32042

const questionParams = (message: string, { id, url }: UrlQuestion) => ({
  mode: 'url',
  message,
  elicitationId: id,
  url,
})

/** The result, or the error, that asks the client to open the page. JSON text. */
export function urlQuestionMember(
  message: string,
  question: UrlQuestion,
): { readonly member: 'result' | 'error'; readonly text: string } {
  const params = questionParams(message, question)
  if (question.state === null) {
    const data = { elicitations: [params] }
    return { member: 'error', text: JSON.stringify({ code: URL_ELICITATION_REQUIRED, message, data }) }
  }
  const inputRequests = { [question.name]: { method: 'elicitation/create', params } }
  const result = { resultType: 'input_required', inputRequests, requestState: question.state }
  return { member: 'result', text: JSON.stringify(result) }
}
