import { uriNamesOf } from '../certs/spiffe-id.ts'
import { isSvidOf } from '../certs/svid.ts'
import { listAttachedCas } from '../db/attached-cas.ts'
import type { Database } from '../db/database.ts'
import type { PinnedPrincipal } from '../db/pins.ts'
import { spiffePrincipal } from '../db/spiffe-principals.ts'
import type { Peer } from './plugin.ts'

/** SVIDs whose chain need not be built again, */
const REMEMBERED = 10_000
/** and for how long: the CAs above it have an end too. ms. */
const REMEMBERED_MS = 60_000

/** Who this certificate speaks for by its SPIFFE id, or undefined. */
export type SpiffeLookup = (peer: Peer, at: number) => Promise<PinnedPrincipal | undefined>

/**
 * The pin of an enrolled SPIFFE id (WIRE.md §2): any SVID of that id that chains to its bundle now, so that rotation
 * needs nobody. Who is enrolled and which CAs stand is asked on every request; that an SVID chains to exactly those
 * CAs is remembered for a minute, and its own dates are judged by `pin` for every certificate alike.
 */
export function spiffePin(database: Database): SpiffeLookup {
  const chained = new Map<string, number>()
  return async (peer, at) => {
    const { certificate, thumbprint } = peer
    const spiffeId = spiffeIdOf(peer)
    const principal = spiffeId === null ? undefined : await spiffePrincipal(database, spiffeId)
    if (!principal || spiffeId === null) return undefined
    const bundlePems = await bundleOf(database, principal.bundlePem)
    const key = [thumbprint, spiffeId, ...bundlePems].join(' ')
    if (at >= (chained.get(key) ?? 0)) {
      if (!(await isSvidOf({ leafDer: certificate.raw, spiffeId, bundlePems, at }))) return undefined
      if (chained.size >= REMEMBERED) chained.clear()
      chained.set(key, at + REMEMBERED_MS)
    }
    return principal
  }
}

async function bundleOf(database: Database, own: string | null): Promise<readonly string[]> {
  return own === null ? (await listAttachedCas(database, 'spiffe')).map((ca) => ca.ca_pem) : [own]
}

// Read once a connection: a certificate does not change, and reading DER costs more than all the rest.
const ids = new WeakMap<Peer, string | null>()

function spiffeIdOf(peer: Peer): string | null {
  const known = ids.get(peer)
  if (known !== undefined) return known
  // Node's text form is no evidence, but without these letters there is nothing to read.
  const named = peer.certificate.subjectAltName?.includes('URI:') ?? false
  const id = named ? soleSpiffeId(peer.certificate.raw) : null
  ids.set(peer, id)
  return id
}

function soleSpiffeId(der: Uint8Array): string | null {
  try {
    const [uri, ...more] = uriNamesOf(der)
    return uri?.startsWith('spiffe://') && more.length === 0 ? uri : null
  } catch {
    // Not a certificate that anybody could read: nobody's.
    return null
  }
}
