import { type GeneralName, GeneralNames } from 'pkijs'
import { extensionOf, OID, readCertificate } from '../x509/x509.ts'

/**
 * The identity that a certificate speaks for: `spiffe://<trust_domain>/<org>/<name>` for an agent
 * (specification §2.6), with a segment of its own before the name for a user, a workload or an operator, so
 * that their names and the agents' never meet.
 */
export interface SpiffeId {
  readonly trustDomain: string
  readonly org: string
  /** Absent: an agent. */
  readonly kind?: 'user' | 'workload' | 'operator'
  readonly name: string
}

const TRUST_DOMAIN = /^[a-z0-9._-]{1,255}$/
const SEGMENT = /^[a-zA-Z0-9._-]{1,255}$/
const WORKLOAD_ID = /^spiffe:\/\/[a-z0-9._-]{1,255}(\/[a-zA-Z0-9._-]+)+$/
/** The longest SPIFFE ID that everybody must understand (SPIFFE-ID §2.3). */
const URI_LIMIT = 2048
const URI_NAME = 6

/** Prints an id in its only spelling. Throws an Error that names the member which no SPIFFE id may hold. */
export function printSpiffeId({ trustDomain, org, kind, name }: SpiffeId): string {
  if (!TRUST_DOMAIN.test(trustDomain))
    throw new Error('the trust domain may hold only a-z, 0-9, ".", "-", "_"')
  checkSegment('organisation', org)
  checkSegment('name', name)
  return `spiffe://${trustDomain}/${org}/${kind === undefined ? '' : `${kind}/`}${name}`
}

/**
 * Reads an id, case-exact, in its only spelling: no percent-encoding, user, port, query, fragment, dot
 * segment or slash at the end. Throws an Error that names the reason and never repeats the input.
 */
export function parseSpiffeId(uri: string): SpiffeId {
  if (!uri.startsWith('spiffe://')) throw new Error('a SPIFFE id starts with spiffe://')
  const [trustDomain, org, ...path] = uri.slice('spiffe://'.length).split('/')
  const named = nameOf(path)
  if (trustDomain === undefined || org === undefined || named === null) {
    throw new Error('a SPIFFE id has three parts: spiffe://<trust_domain>/<org>/<name>')
  }
  const id = { trustDomain, org, ...named }
  printSpiffeId(id)
  return id
}

function nameOf([first, second, ...rest]: readonly string[]): Pick<SpiffeId, 'kind' | 'name'> | null {
  if (first === undefined || rest.length > 0) return null
  if (second === undefined) return { name: first }
  return first === 'user' || first === 'workload' || first === 'operator'
    ? { kind: first, name: second }
    : null
}

/**
 * Tells whether a text is a SPIFFE ID in its only spelling, of any trust domain and with any path that is not
 * empty (SPIFFE-ID §2), as a workload of another organisation may have. Ours have two segments:
 * {@link parseSpiffeId}.
 */
export function isWorkloadId(uri: string): boolean {
  if (uri.length > URI_LIMIT || !WORKLOAD_ID.test(uri)) return false
  return !uri.split('/').some((segment) => segment === '.' || segment === '..')
}

function checkSegment(what: string, segment: string): void {
  if (!SEGMENT.test(segment)) throw new Error(`the ${what} may hold only a-z, A-Z, 0-9, ".", "-", "_"`)
  // A path library of another hop would resolve them to somebody else's name.
  if (segment === '.' || segment === '..') throw new Error(`the ${what} must not be "." or ".."`)
}

/**
 * Returns every URI in a certificate's subjectAltName, in order, exactly as encoded (docs/threats.md#m-08).
 * Read from the DER: in Node's text form a URI that holds `, DNS:evil` looks like two names. Throws an Error
 * if the bytes are not one certificate or hold two subjectAltName extensions. Does NOT require exactly one,
 * nor a SPIFFE id: the caller counts and parses.
 */
export function uriNamesOf(certificateDer: Uint8Array): readonly string[] {
  return subjectAltNamesOf(certificateDer)
    .filter((name) => name.type === URI_NAME)
    .map((name) => String(name.value))
}

/** Returns every name of the subjectAltName, of any kind. Throws as {@link uriNamesOf} does. */
export function subjectAltNamesOf(certificateDer: Uint8Array): readonly GeneralName[] {
  const certificate = readCertificate(certificateDer)
  return extensionOf(certificate, OID.subjectAltName, (schema) => new GeneralNames({ schema }).names) ?? []
}

/** Tells whether these names are that URI, exactly, and no other name of any kind. */
export function isSoleUri([name, ...rest]: readonly GeneralName[], uri: string): boolean {
  return rest.length === 0 && name?.type === URI_NAME && name.value === uri
}
