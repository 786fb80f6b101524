import { OctetString, Sequence, Set as SetValue } from 'asn1js'
import {
  AttributeTypeAndValue,
  type GeneralName,
  type GeneralSubtree,
  RelativeDistinguishedNames,
} from 'pkijs'
import type { ChainCertificate } from './chain-link.ts'
import { decodeAsn1, readCertificate } from './x509.ts'

const MAIL_ADDRESS = 1
const DNS_NAME = 2
const DIRECTORY_NAME = 4
const URI_NAME = 6
const IP_ADDRESS = 7

const EMAIL_ATTRIBUTE = '1.2.840.113549.1.9.1'

/** A name that a certificate carries, as pkijs reads it. */
type CarriedName = Pick<GeneralName, 'type' | 'value'>

/**
 * Tells whether every certificate below `issuer` has only names that its nameConstraints permit
 * (RFC 5280 §4.2.1.10), its subject and the mail addresses in that included. Understands constraints on URIs,
 * DNS names, directory names, IP addresses and mail addresses. One of another kind permits nothing: better a
 * refused chain than a rule that is not kept.
 */
export function permitsNames(
  { nameConstraints }: ChainCertificate,
  below: readonly ChainCertificate[],
): boolean {
  if (nameConstraints === null) return true
  const permitted = nameConstraints.permittedSubtrees ?? []
  const excluded = nameConstraints.excludedSubtrees ?? []
  const onSubject = [...permitted, ...excluded].some(({ base }) =>
    [DIRECTORY_NAME, MAIL_ADDRESS].includes(base.type),
  )
  return below.every((link) =>
    [...link.names, ...(onSubject ? namesInSubject(link) : [])].every(
      (name) => isPermitted(name, permitted) && !isExcluded(name, excluded),
    ),
  )
}

function namesInSubject({ x509 }: ChainCertificate): readonly CarriedName[] {
  const { subject } = readCertificate(x509.raw)
  if (subject.typesAndValues.length === 0) return []
  const mail = subject.typesAndValues.filter(({ type }) => type === EMAIL_ATTRIBUTE)
  return [
    { type: DIRECTORY_NAME, value: subject },
    ...mail.map(({ value }) => ({ type: MAIL_ADDRESS, value: value.valueBlock.value })),
  ]
}

function isPermitted(name: CarriedName, permitted: readonly GeneralSubtree[]): boolean {
  const ofKind = permitted.filter(({ base }) => base.type === name.type)
  return ofKind.length === 0 || ofKind.some(({ base }) => nameWithin(name, base) === true)
}

function isExcluded(name: CarriedName, excluded: readonly GeneralSubtree[]): boolean {
  return excluded.some(({ base }) => base.type === name.type && nameWithin(name, base) !== false)
}

/** Tells whether a name lies within the base of a constraint. Null: it cannot be told. */
function nameWithin({ type, value }: CarriedName, base: GeneralName): boolean | null {
  if (type === DIRECTORY_NAME) return directoryWithin(value, base.value)
  if (type === IP_ADDRESS) return addressWithin(value, base.value)
  const constraint = String(base.value).toLowerCase()
  if (type === URI_NAME) return uriHostWithin(String(value), constraint)
  if (type === DNS_NAME) return domainWithin(String(value).toLowerCase(), constraint)
  return type === MAIL_ADDRESS ? mailWithin(String(value), String(base.value)) : null
}

// A leading dot means hosts below it; without one, that host alone.
const hostWithin = (host: string, constraint: string): boolean =>
  constraint.startsWith('.') ? host.endsWith(constraint) : host === constraint

function uriHostWithin(uri: string, constraint: string): boolean | null {
  const host = URL.parse(uri)?.hostname.toLowerCase()
  return host ? hostWithin(host, constraint) : null
}

function domainWithin(domain: string, constraint: string): boolean {
  return constraint === '' || domain === constraint || domain.endsWith(`.${constraint.replace(/^\./, '')}`)
}

/** A mailbox, all of a host, or all below a domain. The part before the `@` is case-exact. */
function mailWithin(mail: string, constraint: string): boolean | null {
  const at = mail.lastIndexOf('@')
  if (at < 1) return null
  const host = mail.slice(at + 1).toLowerCase()
  const mark = constraint.lastIndexOf('@')
  if (mark < 0) return hostWithin(host, constraint.toLowerCase())
  return mail.slice(0, at) === constraint.slice(0, mark) && host === constraint.slice(mark + 1).toLowerCase()
}

/** An address of four or sixteen bytes; the constraint has a mask behind it. */
function addressWithin(address: unknown, constraint: unknown): boolean | null {
  if (!(address instanceof OctetString && constraint instanceof OctetString)) return null
  const [given, range] = [address.valueBlock.valueHexView, constraint.valueBlock.valueHexView]
  if (![4, 16].includes(given.length) || ![8, 32].includes(range.length)) return null
  if (range.length !== 2 * given.length) return false
  return given.every((byte, index) => {
    const mask = range[given.length + index] ?? 0
    return (byte & mask) === ((range[index] ?? 0) & mask)
  })
}

/** A name lies within each beginning of it (RFC 5280 §7.1). */
function directoryWithin(name: unknown, constraint: unknown): boolean | null {
  const [steps, beginning] = [stepsOf(name), stepsOf(constraint)]
  if (!steps || !beginning) return null
  return beginning.every((step, index) => step === steps[index])
}

/** The relative names of a name, outermost first, each in one spelling; null if it cannot be read. */
function stepsOf(name: unknown): readonly string[] | null {
  if (!(name instanceof RelativeDistinguishedNames)) return null
  const sequence = decodeAsn1(new Uint8Array(name.valueBeforeDecode))
  if (!(sequence instanceof Sequence)) return null
  const sets = sequence.valueBlock.value
  if (!sets.every((set) => set instanceof SetValue)) return null
  return sets.map(({ valueBlock }) =>
    JSON.stringify(
      valueBlock.value.map((schema) => spellingOf(new AttributeTypeAndValue({ schema }))).sort(),
    ),
  )
}

function spellingOf({ type, value }: AttributeTypeAndValue): string {
  const { value: text } = value.valueBlock as { readonly value: unknown }
  const plain =
    typeof text === 'string'
      ? text.normalize('NFKC').trim().replaceAll(/\s+/g, ' ').toLowerCase()
      : Buffer.from(value.toBER()).toString('hex')
  return `${type}=${plain}`
}
