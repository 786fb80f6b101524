/** One value of ASN.1 as it stands in its bytes (X.690): with tag and length, and without. */
export interface Asn1Element {
  readonly tag: number
  readonly raw: Uint8Array
  readonly content: Uint8Array
}

export const ASN1_TAG = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  time: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const
const CONSTRUCTED = 0x20
/** Deeper than any time stamp; a value without a length is walked once a level. */
const MAX_ELEMENT_DEPTH = 12

/**
 * Reads values one after the other, at one level, as they are taken: the values inside, and those that nobody
 * takes, are not read. So a time stamp costs microseconds, where a tree of all its certificates costs
 * milliseconds. `BER` has lengths left open, as some authorities do; `DER` has each length in its one form.
 * Throws an Error if a value reaches beyond the bytes, or is of a tag of several bytes.
 */
export function* readElements(bytes: Uint8Array, form: Asn1Form): Generator<Asn1Element, void> {
  for (let at = 0; at < bytes.length; ) {
    const element = elementAt(bytes, at, 0, form)
    yield element
    at += element.raw.length
  }
}

type Asn1Form = 'BER' | 'DER'

/** Reads all values of one level as {@link readElements} does, in BER. */
export const elementsIn = (bytes: Uint8Array): readonly Asn1Element[] => [...readElements(bytes, 'BER')]

function elementAt(bytes: Uint8Array, at: number, depth: number, form: Asn1Form): Asn1Element {
  const [tag = 0, first = 0] = bytes.subarray(at, at + 2)
  if (tag === 0 || (tag & 0x1f) === 0x1f || depth > MAX_ELEMENT_DEPTH) throw new Error('this is no ASN.1')
  if (first === 0x80) {
    if (form === 'BER') return openAt(bytes, at, depth)
    throw new Error('a value without a length')
  }
  const more = first < 0x80 ? 0 : first - 0x80
  if (more > 3) throw new Error('a length of more than three bytes')
  const start = at + 2 + more
  const length = more === 0 ? first : bytes.subarray(at + 2, start).reduce((sum, byte) => sum * 256 + byte, 0)
  if (at + 2 > bytes.length || start + length > bytes.length) throw new Error('a value that does not end')
  if (form === 'DER' && first >= 0x80 && length < Math.max(0x80, 256 ** (more - 1)))
    throw new Error('a length in another form than the shortest')
  return { tag, raw: bytes.subarray(at, start + length), content: bytes.subarray(start, start + length) }
}

/** A value without a length, which ends with two zeros. */
function openAt(bytes: Uint8Array, at: number, depth: number): Asn1Element {
  const tag = bytes[at] ?? 0
  if ((tag & CONSTRUCTED) === 0) throw new Error('a value without a length')
  let end = at + 2
  while (bytes[end] !== 0) end += elementAt(bytes, end, depth + 1, 'BER').raw.length
  if (bytes[end + 1] !== 0) throw new Error('a value that does not end')
  return { tag, raw: bytes.subarray(at, end + 2), content: bytes.subarray(at + 2, end) }
}

/** Returns the values in one of this tag. Throws an Error if it is missing, or of another. */
export function partsOf(element: Asn1Element | undefined, tag: number): readonly Asn1Element[] {
  return elementsIn(contentOf(element, tag))
}

/** The content of a value of this tag. Throws an Error if it is missing, or of another tag. */
export function contentOf(element: Asn1Element | undefined, tag: number): Uint8Array {
  if (element?.tag !== tag) throw new Error(`no value of the tag ${tag} where one belongs`)
  return element.content
}

/** The bytes of an OCTET STRING, which BER may have in pieces. */
export function octetsOf(element: Asn1Element | undefined): Uint8Array {
  if (element?.tag !== (ASN1_TAG.octets | CONSTRUCTED)) return contentOf(element, ASN1_TAG.octets)
  return Buffer.concat(elementsIn(element.content).map((piece) => contentOf(piece, ASN1_TAG.octets)))
}

/** An OBJECT IDENTIFIER with dots; `''` if it is none. */
export function oidOf(element: Asn1Element | undefined): string {
  if (element?.tag !== ASN1_TAG.oid) return ''
  const numbers: number[] = []
  let number = 0
  for (const byte of element.content) {
    number = number * 128 + (byte & 0x7f)
    if (byte < 0x80) [numbers[numbers.length], number] = [number, 0]
  }
  const [head = 0, ...rest] = numbers
  const first = Math.min(Math.floor(head / 40), 2)
  return [first, head - first * 40, ...rest].join('.')
}
