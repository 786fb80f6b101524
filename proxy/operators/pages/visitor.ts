import type { KnownOperator, SessionQuestion } from '../../../plugins/operators/operator.ts'
import type { BrowserSessions, EndingSession } from '../../../plugins/operators/sessions.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { type SubmittedForm, withFormToken } from './form.ts'

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
