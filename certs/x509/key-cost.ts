import { ASN1_TAG, type Asn1Element, contentOf, readElements } from './elements.ts'

/** Bytes. Longer moduli are refused: 8192 bits, and the leading zero. */
const MAX_MODULUS = 1025
/**
 * Bytes. FIPS 186-5 §5.4 keeps it below 2^256. OpenSSL bounds it only for moduli of more than 3072 bits: one
 * as long as its modulus makes each verification as dear as a signature, 8 ms.
 */
const MAX_EXPONENT = 33

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
    return isCheapKey(subjectPublicKeyInfo(der))
  } catch {
    // No strict DER, or not the elements of a certificate.
    return false
  }
}

function subjectPublicKeyInfo(der: Uint8Array): Uint8Array {
  const [body] = readElements(soleSequence(der), 'DER')
  // version, if it is there, serialNumber, signature, issuer, validity, subject
  const [first, , , , , sixth, seventh] = readElements(contentOf(body, ASN1_TAG.sequence), 'DER')
  return contentOf(first?.tag === VERSION ? seventh : sixth, ASN1_TAG.sequence)
}

function isCheapKey(info: Uint8Array): boolean {
  const [algorithm, bits] = readElements(info, 'DER')
  const [type, curve] = readElements(contentOf(algorithm, ASN1_TAG.sequence), 'DER')
  const kind = oidHex(type)
  if (EDWARDS.includes(kind)) return true
  if (kind === ELLIPTIC) return CURVES.includes(oidHex(curve))
  if (!RSA.includes(kind)) return false
  const key = contentOf(bits, ASN1_TAG.bits)
  // The bits that its last byte does not use.
  if (key[0] !== 0) return false
  const [modulus, exponent] = readElements(soleSequence(key.subarray(1)), 'DER')
  return isWithin(modulus, MAX_MODULUS) && isWithin(exponent, MAX_EXPONENT)
}

/** Returns the content of a sequence with nothing behind it. */
function soleSequence(der: Uint8Array): Uint8Array {
  const [sequence, another] = readElements(der, 'DER')
  if (another) throw new Error('there is more than one value')
  return contentOf(sequence, ASN1_TAG.sequence)
}

const oidHex = (oid: Asn1Element | undefined): string =>
  Buffer.from(contentOf(oid, ASN1_TAG.oid)).toString('hex')

const isWithin = (integer: Asn1Element | undefined, most: number): boolean =>
  contentOf(integer, ASN1_TAG.integer).length <= most
