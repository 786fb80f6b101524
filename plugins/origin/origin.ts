import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'

/** The words of `Sec-Fetch-Site` for a page of ours, and for somebody who typed the address. */
const OWN_SITES: readonly string[] = ['same-origin', 'none']

/**
 * Refuses the pages of other sites with `origin_not_allowed`, before anybody is asked who they are: a browser
 * shows its user's certificate for whatever page makes it call (docs/threats.md#d1), also by a name that was
 * pointed here (MCP, transports: DNS rebinding). Its `Origin` must be ours or one of `allowed`; without it,
 * or with ours, `Sec-Fetch-Site` must not say another site. Clients that are no browsers send neither.
 */
export function origin(
  baseUrls: () => readonly string[],
  allowed: readonly string[] = [],
): Plugin<Arrival, object> {
  const others = pagesOf(allowed)
  return {
    name: 'origin',
    admit: ({ headers: { origin: page, 'sec-fetch-site': site } }) => {
      if (page !== undefined && others.has(page)) return {}
      if (page !== undefined && !isOurs(page, baseUrls())) throw new Refusal('origin_not_allowed')
      if (site === undefined || OWN_SITES.includes(String(site))) return {}
      throw new Refusal('origin_not_allowed')
    },
  }
}

/** The pages of other sites that may call, as browsers write their `Origin`. */
export const pagesOf = (allowed: readonly string[]): ReadonlySet<string> =>
  new Set(allowed.map((url) => new URL(url).origin))

// Compared by host and port alone: nothing but this service listens there, whatever scheme a page names.
function isOurs(page: string, baseUrls: readonly string[]): boolean {
  const url = URL.parse(page)
  return url !== null && baseUrls.some((base) => placeOf(new URL(base)) === placeOf(url))
}

// With the port that the scheme stands for: http://gateway and https://gateway are different listeners.
const placeOf = ({ protocol, hostname, port }: URL): string =>
  `${hostname}:${port || (protocol === 'https:' ? '443' : '80')}`
