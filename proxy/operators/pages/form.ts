import { requireIdentity } from '../../../plugins/json-body/json-body.ts'
import type { ActorAndHolder } from '../../../plugins/operators/actor.ts'
import type { BrowserSession, KnownOperator, SessionQuestion } from '../../../plugins/operators/operator.ts'
import { type BrowserSessions, checkCsrf, type EndingSession } from '../../../plugins/operators/sessions.ts'
import type { Arrival, MemoryOwner, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/** The session that a browser ends; null if it has none. */
export interface VisitorSession {
  readonly ending: EndingSession | null
}

/** Finds the session to end, also one that opens nothing any more. Refuses with `csrf_invalid`. */
export const visitor = (
  sessions: Pick<BrowserSessions, 'toEnd'>,
): Plugin<Arrival & SubmittedForm, VisitorSession> => ({
  name: 'visitor',
  admit: async (facts) => ({ ending: await sessions.toEnd(withFormToken(facts)) }),
})

const ELSEWHERE: ReadonlySet<unknown> = new Set(['cross-site', 'same-site'])

/** True if a browser follows a link of another site, so that it sends no Strict cookie. */
export const isFromOtherOrigin = ({ headers }: Pick<Arrival, 'headers'>): boolean =>
  ELSEWHERE.has(headers['sec-fetch-site'])

export const sameSiteSession = <Found extends KnownOperator>({
  first,
  again,
}: SessionQuestion<Found>): SessionQuestion<Found> => ({
  first: (arrival) => (isFromOtherOrigin(arrival) ? Promise.resolve(null) : first(arrival)),
  again,
})

export interface SubmittedForm {
  readonly form: ReadonlyMap<string, string>
}

/** Reads an urlencoded form of at most `limit` bytes, each field once. Refuses with `body_invalid`. */
export const formBody = (limit: number): Plugin<Arrival & MemoryOwner, SubmittedForm> => ({
  name: 'form',
  admit: async (facts) => {
    requireIdentity(facts.headers)
    const body = await facts.readBody(limit, facts)
    if (body.length === 0) return { form: new Map() }
    const [type = ''] = (facts.headers['content-type'] ?? '').toLowerCase().split(';')
    const fields = new URLSearchParams(body.toString())
    if (type.trim() !== 'application/x-www-form-urlencoded' || new Set(fields.keys()).size < fields.size)
      throw new Refusal('body_invalid', { message: 'This form does not come from this service.' })
    return { form: new Map(fields) }
  },
})

/** Asks for the operator secret in the field `secret`, by the plugin that reads `X-Admin-Secret`. */
export const secretInForm = ({
  name,
  admit,
}: Plugin<Arrival, ActorAndHolder>): Plugin<Arrival & SubmittedForm, ActorAndHolder> => ({
  name,
  admit: async (facts) => {
    const headers = { ...facts.headers, 'x-admin-secret': facts.form.get('secret') ?? '' }
    try {
      return await admit({ ...facts, headers })
    } catch (error) {
      const isWrong = error instanceof Refusal && error.reason === 'admin_secret_invalid'
      throw isWrong
        ? new Refusal('admin_secret_invalid', { message: 'This is not the operator secret.' })
        : error
    }
  },
})

/** The same request with its field `csrf` as the header that scripts send. */
export const withFormToken = (facts: Arrival & SubmittedForm): Arrival & SubmittedForm => {
  const token = facts.form.get('csrf')
  return token === undefined ? facts : { ...facts, headers: { ...facts.headers, 'x-csrf-token': token } }
}

/** Asks a form for its session's token. Refuses with `csrf_invalid`. */
export const formToken: Plugin<Arrival & SubmittedForm & { readonly session?: BrowserSession }, object> = {
  name: 'csrf',
  admit: ({ session, form: fields }) => {
    if (!session) throw new Refusal('signed_out')
    checkCsrf(session, fields.get('csrf'))
    return {}
  },
}
