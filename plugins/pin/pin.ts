import type { PinnedPrincipal } from '../../db/principals/pins.ts'
import type { Principal } from '../facts.ts'
import type { Arrival, Peer, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import type { SpiffeLookup } from './spiffe.ts'

/**
 * Asks the database, now, whose certificate this is. Never a cache: a revoked pin must hold on the next
 * request.
 */
export type PinLookup = (
  thumbprint: string,
) => PinnedPrincipal | undefined | Promise<PinnedPrincipal | undefined>

// The connection is closed after each of these: what TLS proved about it is of no further use.
const CLOSE = { headers: { connection: 'close' } } as const

/**
 * Finds the principal by its certificate: the SHA-256 of the leaf's DER, as the TLS layer delivered it,
 * against the pins in the database (spec §5.2, RFC 8705 §3). Validity dates and `is_active` are asked on
 * every request, because a connection outlives both (docs/threats.md#t5). Refuses with
 * `certificate_required`, `certificate_not_valid_now`, `certificate_not_pinned` or `principal_deactivated`.
 * Does NOT look at TLS's own `authorized`: the chain was checked when the certificate was issued or enrolled.
 */
export function pin(
  lookup: PinLookup,
  bySpiffeId: SpiffeLookup = nobody,
): Plugin<Arrival, { principal: Principal }> {
  return {
    name: 'pin',
    admit: ({ peer, at, headers }) => {
      if (!peer) throw missing(headers)
      if (at < peer.notBefore || at > peer.notAfter) throw new Refusal('certificate_not_valid_now', CLOSE)
      const found = lookup(peer.thumbprint)
      if (found && !(found instanceof Promise)) return known(found, at)
      return later(found, peer, at, bySpiffeId)
    },
  }
}

/**
 * Asks the pin once more, behind what may take its time: what was revoked meanwhile must hold
 * (docs/threats.md#m-06). Gives the principal as the gate is to judge it.
 */
export function stillPinned({
  name,
  admit,
}: Plugin<Arrival, { principal: Principal }>): Plugin<Arrival, { holder: Principal }> {
  return {
    name,
    admit: (facts) => {
      const found = admit(facts)
      return found instanceof Promise ? found.then(asHolder) : asHolder(found)
    },
  }
}

const asHolder = ({ principal }: { principal: Principal }) => ({ holder: principal })

// A token that comes without its certificate is an invalid one (RFC 8705 §3); nothing at all is only asked
// for (RFC 6750 §3.1).
function missing({ authorization }: Arrival['headers']): Refusal {
  const challenge = authorization === undefined ? {} : { challenge: 'invalid_token' }
  return new Refusal('certificate_required', { ...CLOSE, ...challenge })
}

const nobody: SpiffeLookup = () => Promise.resolve(undefined)

/** Waits for a look-up that takes its time; asks for a certificate that is not pinned by its SPIFFE id. */
async function later(
  found: ReturnType<PinLookup>,
  peer: Peer,
  at: number,
  bySpiffeId: SpiffeLookup,
): Promise<{ principal: Principal }> {
  return known((await found) ?? (await bySpiffeId(peer, at)), at)
}

function known(pinned: PinnedPrincipal | undefined, at: number): { principal: Principal } {
  if (!pinned) throw new Refusal('certificate_not_pinned', CLOSE)
  const inGrace = !pinned.is_current
  if (inGrace && !isBefore(at, pinned.grace_until)) throw new Refusal('certificate_not_pinned', CLOSE)
  if (!pinned.is_active) throw new Refusal('principal_deactivated', CLOSE)
  return {
    principal: {
      id: pinned.principal_id,
      type: pinned.principal_type,
      capabilities: pinned.capabilities,
      dpopJkt: pinned.dpop_jkt,
      previousDpopJkt: isBefore(at, pinned.previous_dpop_jkt_until) ? pinned.previous_dpop_jkt : null,
      inGrace,
      revision: pinned.authority_revision,
    },
  }
}

const isBefore = (at: number, until: string | null): boolean => until !== null && at < Date.parse(until)
