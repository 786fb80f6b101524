import type { SignedIn } from '../../../plugins/operators/sessions.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'

/** The operator whose browser asks for a page; null where nobody is signed in. */
export interface Visited {
  readonly visitor: SignedIn | null
}

/** Finds out whose browser asks for something, and refuses nobody who is not signed in. */
export const visitor = <Facts extends Arrival>(
  session: (facts: Facts) => Promise<SignedIn | null>,
): Plugin<Facts, Visited> => ({
  name: 'visitor',
  admit: async (facts) => ({ visitor: await session(facts) }),
})

const ELSEWHERE: ReadonlySet<unknown> = new Set(['cross-site', 'same-site'])

/**
 * Tells a browser that follows a link of another site: it sends no Strict cookie, or one that nobody listens to, until a
 * page of ours leads it on.
 */
export const isFromElsewhere = ({ headers }: Pick<Arrival, 'headers'>): boolean =>
  ELSEWHERE.has(headers['sec-fetch-site'])
