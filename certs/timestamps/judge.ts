import { hash, X509Certificate } from 'node:crypto'
import { CertificateError } from '../certificate-error.ts'
import { type CertificationPath, verifyChain } from '../x509/chain.ts'
import { chainCertificateOf, KEY_USAGE, keyUsageAllows } from '../x509/chain-link.ts'
import { CERTIFICATE_LIMIT, type PemBlock, pemBlocksOf } from '../x509/x509.ts'
import { type StampSigner, stampSignerOf, type VerifiedSigner, verifyStamp } from './signature.ts'
import { readStamp, StampError } from './stamp.ts'

/** CAs of time-stamping authorities that a verifier trusts. */
export interface StampAuthority {
  /** The file it came from. */
  readonly given: string
  readonly cas: readonly X509Certificate[]
  /** The blocks of the file that are no CA's, each as half a sentence. */
  readonly odd: readonly string[]
}

/** The signer and instant of a stamp, and the authorities above it; null if it is below none. */
export type VerifiedStamp = {
  readonly by: readonly StampAuthority[]
  /** The common name of the signer. */
  readonly name: string
  /** RFC 3339. */
  readonly at: string
} | null

/**
 * Verifies a time stamp over a text. Without authorities only its imprint is compared. With some, its
 * signature is verified too, and its signer's certificate must chain to a CA at the time of the stamp if it
 * names one as its issuer. Rejects with a {@link StampError}. Does NOT look at revocation.
 */
export type StampVerifier = (bytes: Uint8Array, text: string) => Promise<VerifiedStamp>

/**
 * Reads the CA certificates of a PEM text. Throws an Error if there is none. Passes over each other block, as a
 * signer's own certificate in a bundle: it vouches for nobody, and is told in `odd`.
 */
export function stampAuthority(given: string, pem: string): StampAuthority {
  const blocks = pemBlocksOf(pem)
  if (blocks.length > CERTIFICATE_LIMIT)
    throw new Error(`it holds more than ${CERTIFICATE_LIMIT} certificates`)
  const found = blocks.map(stampCaOf)
  const cas = found.filter((ca) => typeof ca !== 'string')
  const odd = found.flatMap((fault, i) =>
    typeof fault === 'string' ? [`the block at line ${blocks[i]?.line} ${fault}`] : [],
  )
  if (cas.length === 0) throw new Error(odd[0] ?? 'there is no certificate in it')
  return { given, cas, odd }
}

/** Returns the CA of a block, or why it is none, as half a sentence. */
function stampCaOf({ label, base64 }: PemBlock): X509Certificate | string {
  if (!label.endsWith('CERTIFICATE')) return `is no certificate: ${label}`
  try {
    const x509 = new X509Certificate(Buffer.from(base64 ?? '', 'base64'))
    const link = chainCertificateOf(x509)
    if (link.constraints?.cA === true && keyUsageAllows(link, KEY_USAGE.keyCertSign, true)) return x509
    return `is no CA: ${x509.subject.replaceAll('\n', ', ')}`
  } catch {
    return 'cannot be read'
  }
}

/** The signers, and the chains, that are remembered: an authority takes another certificate once a year. */
const MAX_CACHED_CHAINS = 256

/** Makes a verifier that remembers certificates: those of one stamp are those of the next. */
export function stampVerifier(authorities: readonly StampAuthority[]): StampVerifier {
  const signers = new Map<string, StampSigner>()
  const paths = new Map<string, CertificationPath>()

  const signerIn = (der: Uint8Array): StampSigner => {
    const key = hash('sha256', der)
    const signer = signers.get(key) ?? stampSignerOf(der)
    keep(signers, key, signer)
    return signer
  }

  /** Why a signer's certificate does not chain to a CA, as a sentence; null if it does. */
  async function chainFault(
    { signer, others }: VerifiedSigner,
    authority: StampAuthority,
    at: number,
  ): Promise<string | null> {
    const key = [
      authority.given,
      signer.link.x509.fingerprint256,
      ...others.map((der) => hash('sha256', der)),
    ]
    const known = paths.get(key.join('\n'))
    if (known?.every(({ x509 }) => x509.validFromDate.getTime() <= at && at <= x509.validToDate.getTime()))
      return null
    try {
      keep(paths, key.join('\n'), await pathOf(signer, others, authority, at))
      return null
    } catch (error) {
      if (error instanceof CertificateError) return error.message
      throw error
    }
  }

  return async (bytes, text) => {
    const stamp = readStamp(bytes)
    if (!stamp.imprint.equals(hash('sha256', text, 'buffer'))) throw new StampError('is of another text')
    if (authorities.length === 0) return null
    const signed = verifyStamp(stamp, signerIn)
    const by: StampAuthority[] = []
    const faults: string[] = []
    for (const authority of authorities) {
      const fault = await chainFault(signed, authority, stamp.at)
      if (fault === null) by.push(authority)
      else if (namesCa(signed, authority)) faults.push(fault)
    }
    if (by.length > 0) return { by, name: signed.signer.name, at: new Date(stamp.at).toISOString() }
    const [fault] = faults
    if (fault !== undefined) throw new StampError(`is not by the CA that it names: ${fault}`)
    return null
  }
}

function keep<Value>(kept: Map<string, Value>, key: string, value: Value): void {
  if (kept.size >= MAX_CACHED_CHAINS) kept.clear()
  kept.set(key, value)
}

const pathOf = (
  { link }: StampSigner,
  others: readonly Uint8Array[],
  { cas }: StampAuthority,
  at: number,
): Promise<CertificationPath> =>
  verifyChain({
    leafPem: link.x509.toString(),
    intermediatesPem: others.flatMap(parseIfUsable).map(String).join(''),
    rootsPem: cas.map(String),
    at,
    purpose: 'time_stamps',
  })

/** True if the issuers' names, signed by anybody, lead from a signer's certificate to a CA. */
function namesCa({ signer, others }: VerifiedSigner, { cas }: StampAuthority): boolean {
  const rest = others.flatMap(parseIfUsable)
  const met = new Set<X509Certificate>([signer.link.x509])
  for (const one of met) {
    if (cas.some(({ subject }) => subject === one.issuer)) return true
    for (const next of rest) if (next.subject === one.issuer) met.add(next)
  }
  return false
}

/** The certificate, if it can stand in a chain: the others prove nothing, and do no harm. */
function parseIfUsable(der: Uint8Array): readonly X509Certificate[] {
  try {
    const x509 = new X509Certificate(der)
    chainCertificateOf(x509)
    return [x509]
  } catch {
    // A broken one is not needed, or the chain is not found.
    return []
  }
}
