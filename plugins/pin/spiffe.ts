import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { isSvidOf } from '../../certs/enrollment/svid.ts'
import type { Database } from '../../db/database.ts'
import type { PinnedPrincipal } from '../../db/principals/pins.ts'
import { type SpiffePrincipal, spiffePrincipal } from '../../db/principals/spiffe.ts'
import { spiffeCasFor } from '../../db/principals/trusted-cas.ts'
import type { TlsPeer } from '../plugin.ts'

/** The most certificates remembered, whose chain need not be built again. */
const CACHE_MAX = 10_000
/** The time that a certificate is remembered. The CAs above it have an end too. ms. */
const CACHE_MS = 60_000

/** Finds the principal that a certificate speaks for by its SPIFFE id; undefined if there is none. */
export type SpiffeLookup = (peer: TlsPeer, at: number) => Promise<PinnedPrincipal | undefined>

/**
 * The pin of an enrolled SPIFFE id (docs/protocol.md#spiffe): any SVID of that id that chains now to its own
 * bundle or the attached CAs that vouch for this agent (docs/protocol.md#trusted-cas). An SVID that needs the
 * bundle before is in grace. That a certificate chains to exactly those CAs is remembered for a minute. `pin`
 * judges the certificate's own dates.
 */
export function spiffePin(database: Database): SpiffeLookup {
  const casFor = spiffeCasFor(database)
  const judged = new LRUCache<string, SvidVerdict>({ max: CACHE_MAX })
  return async (peer, at) => {
    const spiffeId = nameOf(peer)
    const principal = spiffeId === null ? undefined : await spiffePrincipal(database, spiffeId)
    if (!principal || spiffeId === null) return undefined
    const asked = { peer, spiffeId, at }
    const { bundlePems, intermediatesPem } = await casOf(casFor, principal)
    if (await chains({ ...asked, bundlePems, intermediatesPem })) return principal
    for (const [pem, until] of principal.previousBundles()) {
      if (at < Date.parse(until) && (await chains({ ...asked, bundlePems: [pem], intermediatesPem })))
        return { ...principal, is_current: false, grace_until: until }
    }
    return undefined
  }
  function chains({ peer, spiffeId, at, bundlePems, intermediatesPem }: SvidQuestion) {
    if (bundlePems.length === 0) return false
    // A digest: a bundle may be long, and ten thousand of them would fill the memory.
    const key = hash('sha256', [peer.thumbprint, spiffeId, ...bundlePems, '', intermediatesPem].join(' '))
    const known = judged.get(key)
    if (known && at < known.until) return known.holds
    // A refusal is remembered as well, and as soon as it is asked: many requests may come on one connection.
    const holds = isSvidOf({ leafDer: peer.certificate.raw, spiffeId, bundlePems, intermediatesPem, at })
    judged.set(key, { holds, until: at + CACHE_MS })
    return holds
  }
}

interface SvidQuestion {
  readonly peer: TlsPeer
  readonly spiffeId: string
  readonly at: number
  /** The CAs that the SVID must chain to. PEM. */
  readonly bundlePems: readonly string[]
  /** Intermediates that it may chain by. PEM. */
  readonly intermediatesPem: string
}

interface SvidVerdict {
  readonly holds: Promise<boolean>
  /** ms since the epoch. */
  readonly until: number
}

async function casOf(
  casFor: ReturnType<typeof spiffeCasFor>,
  { principal_id: id, bundlePem: own }: SpiffePrincipal,
) {
  const cas = await casFor(id)
  return {
    bundlePems: [
      ...(own === null ? [] : [own]),
      ...cas.flatMap(({ pem, vouches }) => (vouches ? [pem] : [])),
    ],
    intermediatesPem: cas.flatMap(({ pem, vouches }) => (vouches ? [] : [pem])).join(''),
  }
}

const names = new WeakMap<TlsPeer, string | null>()

/**
 * Returns the SPIFFE id that a certificate seems to carry, or null. Read from Node's text form: that is no
 * evidence, but the DER of an anonymous caller may take half a second to read.
 */
function nameOf(peer: TlsPeer): string | null {
  const known = names.get(peer)
  if (known !== undefined) return known
  const [uri, ...more] = peer.certificate.subjectAltName?.match(/URI:[^, "]*/g) ?? []
  const name = uri?.startsWith('URI:spiffe://') && more.length === 0 ? uri.slice('URI:'.length) : null
  names.set(peer, name)
  return name
}
