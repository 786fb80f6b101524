import type { EndingSession } from '../../../plugins/operators/sessions.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'

/** The session that a browser ends; null where it has none. */
export interface VisitorSession {
  readonly ending: EndingSession | null
}

/** Finds the session that a browser ends, also one that opens nothing any more. Refuses with `csrf_invalid`. */
export const visitor = <Facts extends Arrival>(
  toEnd: (facts: Facts) => Promise<EndingSession | null>,
): Plugin<Facts, VisitorSession> => ({
  name: 'visitor',
  admit: async (facts) => ({ ending: await toEnd(facts) }),
})

const ELSEWHERE: ReadonlySet<unknown> = new Set(['cross-site', 'same-site'])

/**
 * Tells a browser that follows a link of another site: it sends no Strict cookie, or one that nobody listens to, until a
 * page of ours leads it on.
 */
export const isFromOtherOrigin = ({ headers }: Pick<Arrival, 'headers'>): boolean =>
  ELSEWHERE.has(headers['sec-fetch-site'])
