/** Bytes. Longer moduli are refused: 8192 bits, and the leading zero. */
const MAX_MODULUS = 1025
/**
 * Bytes. FIPS 186-5 §5.4 keeps it below 2^256. OpenSSL bounds it only for moduli of more than 3072 bits: one
 * as long as its modulus makes each verification as dear as a signature, 8 ms.
 */
const MAX_EXPONENT = 33

const SEQUENCE = 0x30
const INTEGER = 0x02
const BIT_STRING = 0x03
const OID = 0x06
/** The version of a certificate: absent in the first. */
const VERSION = 0xa0

/** The kinds of keys whose signatures take a millisecond at most, by the OID's content. */
const RSA = ['2a864886f70d010101', '2a864886f70d01010a']
const ELLIPTIC = '2a8648ce3d0201'
/**
 * P-256, P-384, P-521: named. Curves that are spelled out are computed without any of OpenSSL's short cuts.
 */
const CURVES = ['2a8648ce3d030107', '2b81040022', '2b81040023']
/** Ed25519, Ed448. */
const EDWARDS = ['2b6570', '2b6571']

/**
 * Tells whether a signature by a certificate's key is cheap to verify, about a millisecond at most: RSA of
 * 8192 bits with an exponent below 2^256, the three NIST curves by name, Ed25519 and Ed448. Reads strict DER,
 * so that another reader sees the same key; false for anything else. Costs microseconds, whatever it is
 * given. Does NOT check whether the key is strong (`strength.ts`), nor anything else of the certificate.
 *
 * @param der One X.509 certificate (RFC 5280 §4.1).
 */
export function isCheapToVerify(der: Uint8Array): boolean {
  try {
    return isCheapKey(subjectPublicKeyInfo(new DerReader(der)))
  } catch (error) {
    if (error instanceof NotDer) return false
    throw error
  }
}

function subjectPublicKeyInfo(bytes: DerReader): DerReader {
  const certificate = bytes.only(SEQUENCE).next(SEQUENCE)
  if (certificate.tag === VERSION) certificate.skip()
  // serialNumber, signature, issuer, validity, subject
  for (let i = 0; i < 5; i += 1) certificate.skip()
  return certificate.next(SEQUENCE)
}

function isCheapKey(info: DerReader): boolean {
  const algorithm = info.next(SEQUENCE)
  const kind = algorithm.next(OID).hex()
  if (EDWARDS.includes(kind)) return true
  if (kind === ELLIPTIC) return CURVES.includes(algorithm.next(OID).hex())
  if (!RSA.includes(kind)) return false
  const key = info.next(BIT_STRING).afterUnusedBits().only(SEQUENCE)
  return key.next(INTEGER).length <= MAX_MODULUS && key.next(INTEGER).length <= MAX_EXPONENT
}

class NotDer extends Error {}

/** A reader of elements one after the other: tags of one byte, lengths in their shortest form. */
class DerReader {
  readonly #bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  /** Bytes that are left. */
  get length(): number {
    return this.#bytes.length - this.#at
  }

  /** The tag of the next element; undefined at the end. */
  get tag(): number | undefined {
    return this.#bytes[this.#at]
  }

  /** Returns the content of the next element, which has this tag. */
  next(tag: number): DerReader {
    if (this.tag !== tag) throw new NotDer()
    return this.skip()
  }

  /** Returns the content of the only element. */
  only(tag: number): DerReader {
    const content = this.next(tag)
    if (this.length > 0) throw new NotDer()
    return content
  }

  /** Goes past the next element, and returns its content. */
  skip(): DerReader {
    this.#at += 1
    const length = this.#elementLength()
    const end = this.#at + length
    if (end > this.#bytes.length) throw new NotDer()
    const content = new DerReader(this.#bytes.subarray(this.#at, end))
    this.#at = end
    return content
  }

  /** Returns the content of a bit string of whole bytes. */
  afterUnusedBits(): DerReader {
    if (this.tag !== 0) throw new NotDer()
    this.#at += 1
    return this
  }

  hex(): string {
    return Buffer.from(this.#bytes.subarray(this.#at)).toString('hex')
  }

  #elementLength(): number {
    const first = this.#byte()
    if (first < 0x80) return first
    const size = first - 0x80
    // Without a length (0x80) is BER; three bytes are more than any certificate that is read has.
    if (size === 0 || size > 3) throw new NotDer()
    let length = 0
    for (let i = 0; i < size; i += 1) length = length * 256 + this.#byte()
    if (length < (size === 1 ? 0x80 : 256 ** (size - 1))) throw new NotDer()
    return length
  }

  #byte(): number {
    const byte = this.#bytes[this.#at]
    if (byte === undefined) throw new NotDer()
    this.#at += 1
    return byte
  }
}
