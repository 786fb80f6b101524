import { createHash, hash } from 'node:crypto'
import type { PinnedPrincipal } from '../../db/principals/pins.ts'
import type { Commitments, Principal } from '../facts.ts'
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

/** The keys of commitments, by the name that the ledger knows a principal by. */
export interface KeyLookup {
  readonly known: { readonly get: (ref: string) => Buffer | undefined }
  readonly open: (ref: string) => Buffer | Promise<Buffer>
}

interface Given {
  readonly principal: Principal
  readonly commitments: Commitments
}

// The connection is closed after each of these: what TLS proved about it is of no further use.
const CLOSE = { headers: { connection: 'close' } } as const

/**
 * Finds the principal by its certificate: the SHA-256 of the leaf's DER, as the TLS layer delivered it,
 * against the pins in the database (spec §5.2, RFC 8705 §3). Validity dates and `is_active` are asked on
 * every request, because a connection outlives both (docs/threats.md#t5). Gives the means to commit to what the
 * call carries, too. Refuses with
 * `certificate_required`, `certificate_not_valid_now`, `certificate_not_pinned` or `principal_deactivated`.
 * Does NOT look at TLS's own `authorized`: the chain was checked when the certificate was issued or enrolled.
 */
export function pin(
  lookup: PinLookup,
  keys: KeyLookup,
  bySpiffeId: SpiffeLookup = nobody,
): Plugin<Arrival, Given> {
  return {
    name: 'pin',
    admit: ({ peer, at, headers, id }) => {
      if (!peer) throw missing(headers)
      if (at < peer.notBefore || at > peer.notAfter) throw new Refusal('certificate_not_valid_now', CLOSE)
      const found = lookup(peer.thumbprint)
      const asked = found && !(found instanceof Promise) ? found : later(found, peer, at, bySpiffeId)
      if (asked instanceof Promise) return asked.then((pinned) => given(pinned, at, id, keys))
      return given(asked, at, id, keys)
    },
  }
}

/**
 * Asks the pin once more, behind what may take its time: what was revoked meanwhile must hold
 * (docs/threats.md#m-06). Gives the principal as the gate is to judge it.
 */
export function stillPinned({ name, admit }: Plugin<Arrival, Given>): Plugin<Arrival, { holder: Principal }> {
  return {
    name,
    admit: (facts) => {
      const found = admit(facts)
      return found instanceof Promise ? found.then(asHolder) : asHolder(found)
    },
  }
}

const asHolder = ({ principal }: Given) => ({ holder: principal })

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
): Promise<PinnedPrincipal | undefined> {
  return (await found) ?? (await bySpiffeId(peer, at))
}

function given(
  pinned: PinnedPrincipal | undefined,
  at: number,
  requestId: string,
  keys: KeyLookup,
): Given | Promise<Given> {
  const principal = known(pinned, at)
  const key = keys.known.get(principal.ref) ?? keys.open(principal.ref)
  const held = (bytes: Buffer): Given => ({ principal, commitments: commitmentsBy(bytes, requestId) })
  return key instanceof Promise ? key.then(held) : held(key)
}

function known(pinned: PinnedPrincipal | undefined, at: number): Principal {
  if (!pinned) throw new Refusal('certificate_not_pinned', CLOSE)
  const inGrace = !pinned.is_current
  if (inGrace && !isBefore(at, pinned.grace_until)) throw new Refusal('certificate_not_pinned', CLOSE)
  if (!pinned.is_active) throw new Refusal('principal_deactivated', CLOSE)
  return {
    id: pinned.principal_id,
    ref: pinned.principal_ref,
    type: pinned.principal_type,
    capabilities: pinned.capabilities,
    dpopJkt: pinned.dpop_jkt,
    previousDpopJkt: isBefore(at, pinned.previous_dpop_jkt_until) ? pinned.previous_dpop_jkt : null,
    inGrace,
    revision: pinned.authority_revision,
  }
}

const SALT_BYTES = 16

/** Makes the commitments of one request by its principal's key (docs/ledger.md#commitments). */
export function commitmentsBy(key: Buffer, requestId: string): Commitments {
  const salts = new Map<string, Buffer>()
  const salt = (label: string): Buffer => {
    const known = salts.get(label) ?? hmac(key, requestId + label).subarray(0, SALT_BYTES)
    salts.set(label, known)
    return known
  }
  return {
    salt,
    hashing: (label) => createHash('sha256').update(salt(label)),
    of: (label, bytes) => {
      const given = typeof bytes === 'string' ? Buffer.from(bytes) : bytes
      return hash('sha256', Buffer.concat([salt(label), given]))
    },
  }
}

const BLOCK_BYTES = 64

interface Pads {
  readonly inner: Buffer
  readonly outer: Buffer
}

const pads = new WeakMap<Buffer, Pads>()

/** HMAC-SHA-256 (RFC 2104) by two digests at once: node:crypto's own takes 11 µs, four times as long. */
function hmac(key: Buffer, text: string): Buffer {
  const { inner, outer } = pads.get(key) ?? padsOf(key)
  const first = hash('sha256', Buffer.concat([inner, Buffer.from(text)]), 'buffer')
  return hash('sha256', Buffer.concat([outer, first]), 'buffer')
}

function padsOf(key: Buffer): Pads {
  if (key.length > BLOCK_BYTES) throw new Error('a subject key is longer than a block of its digest')
  const padded = Buffer.alloc(BLOCK_BYTES)
  key.copy(padded)
  const mixed = (byte: number): Buffer => Buffer.from(padded.map((own) => own ^ byte))
  const made = { inner: mixed(0x36), outer: mixed(0x5c) }
  pads.set(key, made)
  return made
}

const isBefore = (at: number, until: string | null): boolean => until !== null && at < Date.parse(until)
