import { hash, X509Certificate } from 'node:crypto'
import { type BaseBlock, Constructed, fromBER } from 'asn1js'
import { Certificate } from 'pkijs'

/**
 * Returns the thumbprint that a certificate is pinned by: lower-case hex SHA-256 of its DER (RFC 8705 §3.1).
 * The claim `x5t#S256` is the same digest in base64url. Does NOT look at the bytes' meaning.
 */
export function thumbprintOf(der: Uint8Array): string {
  return hash('sha256', der, 'hex')
}

/** Extensions and algorithms by number (RFC 5280 §4.2, RFC 5758 §3.2). */
export const OID = {
  commonName: '2.5.4.3',
  organisation: '2.5.4.10',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  nameConstraints: '2.5.29.30',
  certificatePolicies: '2.5.29.32',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
  clientAuth: '1.3.6.1.5.5.7.3.2',
  timeStamping: '1.3.6.1.5.5.7.3.8',
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
} as const

export type Asn1Value = ReturnType<typeof fromBER>['result']

// An honest certificate has some 100 nodes and 8 levels; a hostile one must not buy more work than that is
// worth.
const LIMITS = { maxDepth: 32, maxNodes: 4000, maxContentLength: 65_536, parseEmbedded: false }
const PEM_LIMIT = 262_144
/** The certificates that are read from one text, as many as CAs may be attached. */
export const CERTIFICATE_LIMIT = 100
const BEGIN = '-----BEGIN CERTIFICATE-----'

/** Decodes exactly one ASN.1 value. Throws an Error if it is malformed or followed by more bytes. */
export function decodeAsn1(der: Uint8Array): Asn1Value {
  // asn1js reads the buffer behind a view in places; a copy has no other bytes behind it.
  const bytes = Uint8Array.from(der)
  const { offset, result } = fromBER(bytes, LIMITS)
  if (offset !== bytes.byteLength || !isWithinParent(result))
    throw new Error('this is not exactly one ASN.1 value')
  return result
}

// asn1js lets a value reach beyond the end of the one that holds it: the signed value would not be the one
// that is read.
function isWithinParent(node: BaseBlock): boolean {
  if (!(node instanceof Constructed)) return true
  const { lenBlock, valueBlock } = node
  const held = valueBlock.value.reduce((sum, { blockLength }) => sum + blockLength, 0)
  return (lenBlock.isIndefiniteForm || held === lenBlock.length) && valueBlock.value.every(isWithinParent)
}

/**
 * Decodes one certificate (RFC 5280 §4.1). Throws an Error if the bytes are anything else. Checks NO
 * signature, date or extension.
 */
export function readCertificate(der: Uint8Array): Certificate {
  try {
    return new Certificate({ schema: decodeAsn1(der) })
  } catch (cause) {
    throw new Error('this is not one X.509 certificate in DER', { cause })
  }
}

/** A holder of extensions: a certificate, or the extensionRequest of a CSR. */
export type ExtensionHolder = Pick<Certificate, 'extensions'>

/**
 * Reads one extension with `read`; null if it is absent. Throws an Error if it occurs twice (RFC 5280 §4.2)
 * or cannot be read. pkijs' own `parsedValue` is not used: for a malformed value it gives an empty one.
 */
export function extensionOf<T>(
  holder: ExtensionHolder,
  oid: string,
  read: (schema: Asn1Value) => T,
): T | null {
  const [extension, second] = (holder.extensions ?? []).filter(({ extnID }) => extnID === oid)
  if (second) throw new Error(`extension ${oid} occurs twice`)
  if (!extension) return null
  try {
    return read(decodeAsn1(extension.extnValue.valueBlock.valueHexView))
  } catch (cause) {
    throw new Error(`extension ${oid} is malformed`, { cause })
  }
}

/** Returns the text of the first attribute of that kind in the certificate's subject, or null. */
export function subjectAttributeOf(certificate: Certificate, oid: string): string | null {
  const attribute = certificate.subject.typesAndValues.find(({ type }) => type === oid)
  return attribute ? String(attribute.value.valueBlock.value) : null
}

/**
 * Reads the certificates of a PEM text in their order; other blocks and text between them are passed over.
 * Throws an Error if a block is not a certificate, the text is longer than 256 KiB, or it holds more than 100
 * certificates: then none is read. None is passed over in silence.
 */
export function pemCertificatesOf(pem: string): readonly X509Certificate[] {
  if (pem.length > PEM_LIMIT) throw new Error(`the PEM text is longer than ${PEM_LIMIT} characters`)
  const begun = countCertificates(pem)
  if (begun > CERTIFICATE_LIMIT) throw new Error(`the text holds more than ${CERTIFICATE_LIMIT} certificates`)
  // The class stops at the next dash, so that unclosed blocks cost no second look.
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g) ?? []
  if (begun !== blocks.length) {
    throw new Error(
      'a PEM block is damaged: it begins and does not end, or holds other characters than base64',
    )
  }
  return blocks.map(readBlock)
}

/** A block of a PEM text. */
export interface PemBlock {
  /** The word of its first line: `CERTIFICATE`. */
  readonly label: string
  /** The line of the text at which it begins, counted from 1. */
  readonly line: number
  /** Null: it is damaged: it does not end, or holds other characters than base64. */
  readonly base64: string | null
}

/** Finds the blocks of a PEM text, whatever stands between them. Throws an Error past 256 KiB. */
export function pemBlocksOf(pem: string): readonly PemBlock[] {
  if (pem.length > PEM_LIMIT) throw new Error(`the PEM text is longer than ${PEM_LIMIT} characters`)
  const begun = [...pem.matchAll(/-----BEGIN ([A-Z0-9. ]{1,64})-----/g)]
  let [line, counted] = [1, 0]
  return begun.map(({ 0: head, 1: label = '', index }, i) => {
    for (; counted < index; counted += 1) if (pem.charCodeAt(counted) === NEWLINE) line += 1
    const text = pem.slice(index + head.length, begun[i + 1]?.index)
    const end = text.indexOf(`-----END ${label}-----`)
    const base64 = text.slice(0, Math.max(end, 0))
    return { label, line, base64: /^[A-Za-z0-9+/=\s]+$/.test(base64) ? base64 : null }
  })
}

const NEWLINE = 0x0a

/** Counts the certificates that a PEM text seems to hold. Reads none of them. */
export const countCertificates = (pem: string): number => pem.split(BEGIN).length - 1

/** Returns the first certificate of a PEM text. Throws an Error if there is none. */
export function firstCertificateOf(pem: string): X509Certificate {
  const [first] = pemCertificatesOf(pem)
  if (!first) throw new Error('the text holds no PEM certificate')
  return first
}

function readBlock(block: string): X509Certificate {
  try {
    return new X509Certificate(block)
  } catch (cause) {
    throw new Error('a PEM block is not an X.509 certificate', { cause })
  }
}
