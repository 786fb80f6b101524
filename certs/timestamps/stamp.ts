import {
  ASN1_TAG,
  type Asn1Element,
  contentOf,
  elementsIn,
  octetsOf,
  oidOf,
  partsOf,
} from '../x509/elements.ts'

/** A parsed time stamp (RFC 3161). Nothing in it is believed yet. */
export interface TimeStampToken {
  /** SHA-256 of the stamped bytes. */
  readonly imprint: Buffer
  /** ms since the epoch, rounded down. */
  readonly at: number
  /** Empty if there is none. */
  readonly nonce: Buffer
  /** The signed bytes: its TSTInfo. */
  readonly content: Uint8Array
  readonly signer: SignerInfo
  /** The certificates that it brings. DER; not parsed yet. */
  readonly certificates: readonly Uint8Array[]
}

/**
 * The claimed signer of a time stamp, and how (RFC 5652, section 5.3). Algorithms and types of attributes:
 * OIDs.
 */
export interface SignerInfo {
  /** Issuer and serial number of its certificate, with tag and length. */
  readonly named: readonly Uint8Array[]
  readonly digest: string
  readonly algorithm: string
  readonly signature: Uint8Array
  /** The signed attributes as they are signed: a SET. */
  readonly signed: Uint8Array
  readonly attributes: readonly { readonly type: string; readonly values: readonly Asn1Element[] }[]
}

/** A time stamp that does not hold. The message is half a sentence about it. */
export class StampError extends Error {
  override readonly name = 'StampError'
}

/** The longest time stamp that is read. Bytes. */
const STAMP_LIMIT = 65_536
export const SHA_256 = '2.16.840.1.101.3.4.2.1'
export const TST_INFO = '1.2.840.113549.1.9.16.1.4'
const SIGNED_DATA = '1.2.840.113549.1.7.2'
/** [0], explicit and implicit. */
const FIRST = 0xa0

/**
 * Reads a TimeStampResp that was granted, with one signer and an imprint by SHA-256. Throws a {@link
 * StampError} if it is none. Does NOT verify its signature: `signature.ts` does.
 */
export function readStamp(bytes: Uint8Array): TimeStampToken {
  if (bytes.length > STAMP_LIMIT) throw new StampError(`is longer than ${STAMP_LIMIT} bytes`)
  return withStampErrors(() => stampOf(bytes))
}

/** Runs a reader; an error becomes a time stamp that cannot be read. */
export function withStampErrors<Value>(read: () => Value): Value {
  try {
    return read()
  } catch (cause) {
    if (cause instanceof StampError) throw cause
    throw new StampError('cannot be read', { cause })
  }
}

function stampOf(bytes: Uint8Array): TimeStampToken {
  const [response, more] = elementsIn(bytes)
  const [status, token] = partsOf(response, ASN1_TAG.sequence)
  const code = Buffer.from(contentOf(partsOf(status, ASN1_TAG.sequence)[0], ASN1_TAG.integer)).toString('hex')
  // granted, grantedWithMods
  if (code !== '00' && code !== '01') throw new StampError(`was refused with status ${code}`)
  const [type, held] = partsOf(token, ASN1_TAG.sequence)
  if (more || oidOf(type) !== SIGNED_DATA) throw new Error('there is no signed token')
  const [, , encapsulated, ...parts] = partsOf(partsOf(held, FIRST)[0], ASN1_TAG.sequence)
  const [contentType, wrapped] = partsOf(encapsulated, ASN1_TAG.sequence)
  if (oidOf(contentType) !== TST_INFO) throw new Error('the token is of something else')
  const content = octetsOf(partsOf(wrapped, FIRST)[0])
  const certificates = parts.find(({ tag }) => tag === FIRST)?.content ?? new Uint8Array()
  const [signer, another] = partsOf(parts.at(-1), ASN1_TAG.set)
  if (another) throw new Error('it has more than one signer')
  return {
    ...infoOf(content),
    content,
    signer: signerOf(signer),
    certificates: elementsIn(certificates).flatMap(({ tag, raw }) =>
      tag === ASN1_TAG.sequence ? [raw] : [],
    ),
  }
}

function signerOf(element: Asn1Element | undefined): SignerInfo {
  const [, named, digest, signed, algorithm, signature] = partsOf(element, ASN1_TAG.sequence)
  const attributes = partsOf(signed, FIRST).map((attribute) => {
    const [type, values] = partsOf(attribute, ASN1_TAG.sequence)
    return { type: oidOf(type), values: partsOf(values, ASN1_TAG.set) }
  })
  return {
    named: partsOf(named, ASN1_TAG.sequence).map(({ raw }) => raw),
    digest: oidOf(partsOf(digest, ASN1_TAG.sequence)[0]),
    algorithm: oidOf(partsOf(algorithm, ASN1_TAG.sequence)[0]),
    signature: octetsOf(signature),
    signed: Buffer.concat([Buffer.of(ASN1_TAG.set), signed?.raw.subarray(1) ?? Buffer.alloc(0)]),
    attributes,
  }
}

function infoOf(content: Uint8Array): Pick<TimeStampToken, 'imprint' | 'at' | 'nonce'> {
  const [info, more] = elementsIn(content)
  const [version, , imprint, , time, ...rest] = partsOf(info, ASN1_TAG.sequence)
  const [algorithm, digest] = partsOf(imprint, ASN1_TAG.sequence)
  if (more || Buffer.from(contentOf(version, ASN1_TAG.integer)).toString('hex') !== '01')
    throw new Error('it is of another version')
  if (oidOf(partsOf(algorithm, ASN1_TAG.sequence)[0]) !== SHA_256)
    throw new StampError('is of another digest than SHA-256')
  return {
    imprint: Buffer.from(octetsOf(digest)),
    at: instantOf(Buffer.from(contentOf(time, ASN1_TAG.time)).toString('latin1')),
    nonce: Buffer.from(rest.find(({ tag }) => tag === ASN1_TAG.integer)?.content ?? []),
  }
}

const TIME = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d{1,9}))?Z$/

/** A genTime (RFC 3161, section 2.4.2). */
function instantOf(text: string): number {
  const [, year, month, day, hour, minute, second, fraction = ''] = TIME.exec(text) ?? []
  const iso = `${year}-${month}-${day}T${hour}:${minute}:${second}.${fraction.padEnd(3, '0').slice(0, 3)}Z`
  const at = Date.parse(iso)
  // A 30th of February is no day, whatever Date makes of it.
  if (Number.isNaN(at) || new Date(at).toISOString() !== iso) throw new Error('its time is none')
  return at
}

/** The issuer and the serial number that a certificate says, with tag and length (RFC 5280, section 4.1). */
export function issuerAndSerialOf(certificate: Uint8Array): readonly Uint8Array[] {
  const [body] = partsOf(elementsIn(certificate)[0], ASN1_TAG.sequence)
  const [serial, , issuer] = partsOf(body, ASN1_TAG.sequence).filter(({ tag }) => tag !== FIRST)
  return [issuer?.raw ?? new Uint8Array(), serial?.raw ?? new Uint8Array()]
}
