import { hash } from 'node:crypto'
import { svidAnchor } from '../../certs/enrollment/svid.ts'
import type { Database } from '../../db/database.ts'
import { caDigests, isTextOf, printDigests } from '../../db/principals/ca-texts.ts'
import type { PinnedPrincipal } from '../../db/principals/pins.ts'
import { type SpiffePrincipal, spiffePrincipal } from '../../db/principals/spiffe.ts'
import { spiffeCasFor } from '../../db/principals/trusted-cas.ts'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import type { TlsPeer } from '../plugin.ts'
import type { EditedTexts } from './edited-texts.ts'

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
 * A text whose certificates are not those of its digests vouches for nobody, and is told
 * (docs/ledger.md#owner).
 */
export function spiffePin(database: Database, edited: Pick<EditedTexts, 'note'>): SpiffeLookup {
  const casFor = spiffeCasFor(database)
  const judged = boundedCache<SvidVerdict>(CACHE_MAX)
  return async (peer, at) => {
    const spiffeId = nameOf(peer)
    const principal = spiffeId === null ? undefined : await spiffePrincipal(database, spiffeId)
    if (!principal || spiffeId === null) return undefined
    const asked = { peer, spiffeId, at }
    const told = (what: string): void => edited.note(what, at)
    const { bundlePems, intermediatesPem } = await casOf(casFor, principal, told)
    const anchor = await anchorOf({ ...asked, bundlePems, intermediatesPem })
    if (anchor !== null) return { ...principal, anchor }
    for (const [pem, until, digests] of principal.previousBundles()) {
      if (at >= Date.parse(until)) continue
      if (!isTextOf(pem, printDigests(digests))) told(`a bundle before of ${principal.principal_id}`)
      else {
        const before = await anchorOf({ ...asked, bundlePems: [pem], intermediatesPem })
        if (before !== null) return { ...principal, anchor: before, is_current: false, grace_until: until }
      }
    }
    return undefined
  }
  function anchorOf({ peer, spiffeId, at, bundlePems, intermediatesPem }: SvidQuestion) {
    if (bundlePems.length === 0) return null
    // Digests: a bundle may be long, and ten thousand of them would fill the memory.
    const digests = [...bundlePems.flatMap(caDigests), '', ...caDigests(intermediatesPem)]
    const key = [peer.thumbprint, spiffeId, hash('sha256', digests.join(' '))].join(' ')
    const known = judged.get(key)
    if (known && at < known.until) return known.anchor
    // A refusal is remembered as well, and as soon as it is asked: many requests may come on one connection.
    const anchor = svidAnchor({ leafDer: peer.certificate.raw, spiffeId, bundlePems, intermediatesPem, at })
    judged.set(key, { anchor, until: at + CACHE_MS })
    return anchor
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
  /** The digest of the CA that it chains to; null if to none. */
  readonly anchor: Promise<string | null>
  /** ms since the epoch. */
  readonly until: number
}

/** Reads the CAs of an agent, but for those whose texts are not what rows say. */
async function casOf(
  casFor: ReturnType<typeof spiffeCasFor>,
  { principal_id: id, bundlePem: own, bundleDigests }: SpiffePrincipal,
  told: (what: string) => void,
) {
  const isOwnSound = own !== null && isTextOf(own, bundleDigests)
  if (own !== null && !isOwnSound) told(`the bundle of ${id}`)
  const cas = (await casFor(id)).filter(({ digest, pem }) => {
    const isSound = isTextOf(pem, printDigests([digest]))
    if (!isSound) told(`the attached CA ${digest}`)
    return isSound
  })
  return {
    bundlePems: [...(isOwnSound ? [own] : []), ...cas.flatMap(({ pem, vouches }) => (vouches ? [pem] : []))],
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
