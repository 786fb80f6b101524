import { createHash, type Hash, hash } from 'node:crypto'
import type { CandidateSet, PinnedPrincipal } from '../../db/principals/pins.ts'
import type { CallCommitments, CallGrant, Principal } from '../facts.ts'
import type { Arrival, Plugin, TlsPeer } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { type MonotonicClock, monotonicClock } from '../secrets/throttle.ts'
import type { SpiffeLookup } from './spiffe.ts'

/** Asks the database, now, whose certificate this is. Never a cache: revocation holds at once. */
export type PinLookup = (
  thumbprint: string,
) => PinnedPrincipal | undefined | Promise<PinnedPrincipal | undefined>

/** The keys of commitments, by the name that the ledger knows a principal by. */
export interface KeyLookup {
  readonly known: { readonly get: (ref: string) => Buffer | undefined }
  readonly open: (ref: string) => Buffer | Promise<Buffer>
}

/** The caller, as `pin` finds it. */
export interface PinnedCaller {
  readonly principal: Principal
  readonly commitments: CallCommitments
  /** The candidate set, judged in addition to the real one, which decides nothing; null if there is none. */
  readonly candidate: CandidateSet | null
  /** The instant of the look-up. ms of the monotonic clock. */
  readonly pinnedAt: number
  /** The grant of a call without a certificate (plugins/people/bearer.ts). Absent: it shows a certificate. */
  readonly grant?: CallGrant
}

// The connection is closed after each of these: TLS's proof about it is of no further use.
const CLOSE = { headers: { connection: 'close' } } as const

/**
 * Finds the principal by its certificate: the SHA-256 of the leaf's DER, against the pins in the database
 * (spec §5.2, RFC 8705 §3). Validity dates and `is_active` are asked on every request (docs/threats.md#t5).
 * Gives the means to commit to the call's bytes, too. Refuses with `certificate_required`,
 * `certificate_not_valid_now`, `certificate_not_pinned` or `principal_deactivated`. Does NOT look at TLS's
 * own `authorized`: the chain was checked when the certificate was issued or enrolled.
 */
export function pin(
  lookup: PinLookup,
  keys: KeyLookup,
  bySpiffeId: SpiffeLookup = noSpiffeLookup,
  now: MonotonicClock = monotonicClock,
): Plugin<Arrival, PinnedCaller> {
  const given = (pinned: PinnedPrincipal | undefined, { at, id }: Arrival, pinnedAt: number) => {
    const principal = pinnedPrincipalOf(pinned, at)
    const candidate = pinned?.candidate ?? null
    const key = keys.known.get(principal.ref) ?? keys.open(principal.ref)
    return key instanceof Promise
      ? key.then((opened) => ({ principal, candidate, commitments: commitmentsBy(opened, id), pinnedAt }))
      : { principal, candidate, commitments: commitmentsBy(key, id), pinnedAt }
  }
  /** Waits for a look-up that takes its time; asks for a certificate that is not pinned by its SPIFFE id. */
  const later = async (
    found: ReturnType<PinLookup>,
    arrival: Arrival,
    peer: TlsPeer,
    pinnedAt: number,
  ): Promise<PinnedCaller> => {
    const pinned = await found
    if (pinned) return given(pinned, arrival, pinnedAt)
    return given(await bySpiffeId(peer, arrival.at), arrival, NEVER)
  }
  const admit = (arrival: Arrival): PinnedCaller | Promise<PinnedCaller> => {
    const { peer, at, headers } = arrival
    if (!peer) throw missingCertificate(headers)
    if (at < peer.notBefore || at > peer.notAfter) throw notValidNow(peer, at)
    const pinnedAt = now()
    const found = lookup(peer.thumbprint)
    return found && !(found instanceof Promise)
      ? given(found, arrival, pinnedAt)
      : later(found, arrival, peer, pinnedAt)
  }
  return {
    name: 'pin',
    admit,
    still: async (facts) => ofSamePrincipal(facts.principal, await admit(facts)),
  }
}

/** Refuses a certificate that stands for another principal than it did when the call began. */
function ofSamePrincipal(before: Principal, pinned: PinnedCaller): PinnedCaller {
  const { principal } = pinned
  const isSame = principal.id === before.id && principal.ref === before.ref && principal.type === before.type
  if (!isSame) throw new Refusal('certificate_not_pinned', CLOSE)
  return pinned
}

/** The time that an answer of the database stands without being asked for again. ms. */
const STANDS_MS = 100
/**
 * The CAs that an SVID must chain to are no part of its principal's revision: that it holds is asked each
 * time.
 */
const NEVER = Number.NEGATIVE_INFINITY

/**
 * Asks the pin once more, unless it was asked in the last {@link STANDS_MS} (docs/threats.md#m-06). Gives the
 * principal as the gate is to judge it. For pipelines whose record asserts the principal's revision in its
 * own transaction: this adds changes that no revision counts, such as rows that somebody else has written.
 */
export function recheckPin(
  { name, admit }: Plugin<Arrival, PinnedCaller>,
  now: MonotonicClock = monotonicClock,
): Plugin<Arrival & PinnedCaller, { holder: Principal }> {
  return {
    name,
    admit: (facts) => {
      if (now() - facts.pinnedAt < STANDS_MS) return { holder: facts.principal }
      const found = admit(facts)
      return found instanceof Promise ? found.then(asHolder) : asHolder(found)
    },
    // The pin itself was asked again just before.
    still: asHolder,
  }
}

const asHolder = ({ principal }: PinnedCaller) => ({ holder: principal })

// A token that comes without its certificate is an invalid one (RFC 8705 §3); nothing at all is only asked
// for (RFC 6750 §3.1).
function missingCertificate({ authorization }: Arrival['headers']): Refusal {
  const challenge = authorization === undefined ? {} : { challenge: 'invalid_token' }
  return new Refusal('certificate_required', { ...CLOSE, ...challenge })
}

function notValidNow({ notBefore, notAfter }: TlsPeer, at: number): Refusal {
  const [from, to, now] = [notBefore, notAfter, at].map((instant) => new Date(instant).toISOString())
  const what = at < notBefore ? `is not valid before ${from}` : `has expired at ${to}: renew it`
  return new Refusal('certificate_not_valid_now', {
    ...CLOSE,
    message: `The client certificate ${what}. The clock of this gateway says ${now}.`,
    detail: { not_before: from, not_after: to },
  })
}

const noSpiffeLookup: SpiffeLookup = () => Promise.resolve(undefined)

function pinnedPrincipalOf(pinned: PinnedPrincipal | undefined, at: number): Principal {
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
    ...(pinned.anchor !== undefined && { anchor: pinned.anchor }),
  }
}

const isBefore = (at: number, until: string | null): boolean => until !== null && at < Date.parse(until)

/** Makes the commitments of one request by its principal's key (docs/ledger.md#commitments). */
export const commitmentsBy = (key: Buffer, requestId: string): CallCommitments =>
  new RequestCommitments(key, requestId)

class RequestCommitments implements CallCommitments {
  readonly #key: Buffer
  readonly #requestId: string
  // The last one is kept: a row and its receipt ask for the same.
  #label = ''
  #salt = ''

  constructor(key: Buffer, requestId: string) {
    this.#key = key
    this.#requestId = requestId
  }

  salt(label: string): string {
    if (label !== this.#label) {
      this.#salt = hmac(this.#key, this.#requestId + label).slice(0, SALT_DIGITS)
      this.#label = label
    }
    return this.#salt
  }

  derived(use: string): Buffer {
    // The id of a request, which salts are made of, begins otherwise.
    return Buffer.from(hmac(this.#key, `derived: ${use}`), 'hex')
  }

  hashing(label: string): Hash {
    return createHash('sha256').update(this.salt(label), 'hex')
  }

  of(label: string, bytes: Buffer | string): string {
    if (bytes.length > MAX_AT_ONCE) return this.hashing(label).update(bytes).digest('hex')
    scratch.write(this.salt(label), 'hex')
    return digest(SALT_BYTES + put(bytes, SALT_BYTES))
  }
}

const SALT_BYTES = 16
const SALT_DIGITS = 2 * SALT_BYTES
const BLOCK_BYTES = 64

/** Characters or bytes. A longer text gets a Hash object, which costs as much as the digest of so much. */
const MAX_AT_ONCE = 4_096
// Texts to digest at once are put together here: written and read within one call.
const scratch = Buffer.alloc(BLOCK_BYTES + 3 * MAX_AT_ONCE)

/** Puts bytes into the scratch, a text in UTF-8. Returns their number. */
const put = (bytes: Buffer | string, at: number): number =>
  typeof bytes === 'string' ? scratch.write(bytes, at) : bytes.copy(scratch, at)

/** Digests so many bytes of the scratch. Lower-case hex. */
const digest = (length: number): string => hash('sha256', scratch.subarray(0, length))

/**
 * HMAC-SHA-256 (RFC 2104) of a short text, in hex, by two digests: a tenth of the time of node:crypto's own.
 */
function hmac(key: Buffer, text: string): string {
  if (key.length > BLOCK_BYTES) throw new Error('a subject key is longer than a block of its digest')
  putBlock(key, 0x36)
  const inner = digest(BLOCK_BYTES + put(text, BLOCK_BYTES))
  putBlock(key, 0x5c)
  return digest(BLOCK_BYTES + scratch.write(inner, BLOCK_BYTES, 'hex'))
}

/** Puts a key into the scratch as a block, each of its bytes changed by `mask`. */
function putBlock(key: Buffer, mask: number): void {
  for (let at = 0; at < BLOCK_BYTES; at += 1) scratch[at] = (key[at] ?? 0) ^ mask
}
