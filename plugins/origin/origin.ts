import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'

/** The words of `Sec-Fetch-Site` for a page of ours, and for somebody who typed the address. */
const OWN_SITES: readonly string[] = ['same-origin', 'none']

/**
 * Refuses the pages of other sites with `origin_not_allowed`, before anybody is asked who they are
 * (docs/threats.md#d1; MCP, transports: DNS rebinding). `Origin` must be ours or one of `allowed`; without
 * it, or with ours, `Sec-Fetch-Site` must not say another site. Clients that are no browsers send neither.
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

const LOOPBACK: readonly string[] = ['localhost', '127.0.0.1', '[::1]']

/**
 * A base URL, and that of the page in plain text of this machine, which nobody changes on the way (W3C Secure
 * Contexts §3.1): the MCP conformance suite calls as one.
 */
export function withPlainLoopback(base: string): readonly string[] {
  const { hostname, host } = new URL(base)
  return LOOPBACK.includes(hostname) ? [base, `http://${host}`] : [base]
}

/** The pages of other sites that may call, as browsers write their `Origin`. */
export const pagesOf = (allowed: readonly string[]): ReadonlySet<string> =>
  new Set(allowed.map((url) => new URL(url).origin))

// A page that came in plain text is anybody's on the way, also from our host and port (RFC 6454 §4).
function isOurs(page: string, baseUrls: readonly string[]): boolean {
  const url = URL.parse(page)
  return url !== null && baseUrls.some((base) => schemeAndHost(new URL(base)) === schemeAndHost(url))
}

// Not `origin`: that of a `blob:` URL is its maker's.
const schemeAndHost = ({ protocol, host }: URL): string => `${protocol}//${host}`
