import type { LedgerUnit } from '../../../db/ledger/record/entry.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { ProtocolEra } from './versions.ts'

/** The writes of a new request for an approval: they are in the unit of the refusal. */
export type ApprovalOpening = Pick<LedgerUnit, 'assertions' | 'statements' | 'entries'>

/** Asks the caller's client to open a page (MCP, elicitation in URL mode). */
export interface UrlQuestion {
  readonly era: ProtocolEra
  readonly id: string
  readonly url: string
  /** Sealed: what a caller of the stateless era sends back with the same call. Null: of the older era. */
  readonly state: string | null
}

interface ApprovalRequiredOptions {
  readonly message: string
  readonly detail: Readonly<Record<string, string>>
  /** Null: there is one already, or no room for one. */
  readonly opening?: ApprovalOpening | null
  readonly question?: UrlQuestion | null
}

/** The refusal of a call that somebody must approve first (docs/approvals.md). */
export class ApprovalRequired extends Refusal {
  readonly opening: ApprovalOpening | null
  readonly question: UrlQuestion | null

  constructor({ message, detail, opening = null, question = null }: ApprovalRequiredOptions) {
    super('approval_required', { message, detail })
    this.opening = opening
    this.question = question
  }
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
  const inputRequests = { approval: { method: 'elicitation/create', params } }
  const result = { resultType: 'input_required', inputRequests, requestState: question.state }
  return { member: 'result', text: JSON.stringify(result) }
}
