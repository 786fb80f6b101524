import { createPrivateKey, generateKeyPair, type KeyObject, type X509Certificate } from 'node:crypto'
import { promisify } from 'node:util'
import { BasicConstraints, GeneralName, NameConstraints } from 'pkijs'
import { printSpiffeId } from '../enrollment/spiffe-id.ts'
import {
  extensionOf,
  firstCertificateOf,
  OID,
  readCertificate,
  subjectAttributeOf,
  thumbprintOf,
} from '../x509/x509.ts'
import {
  authorityConstraints,
  BACK_DATED_MS,
  buildCertificate,
  type CertificateSigner,
  COMMON_NAME_LIMIT,
  certSignKeyUsage,
  permittedNameConstraints,
} from './builder.ts'

/**
 * The newly made CA of an organisation, with both private keys (PKCS#8 PEM). Seal the keys before they are
 * stored.
 */
export interface NewAuthority {
  readonly rootPem: string
  readonly rootKeyPem: string
  readonly intermediatePem: string
  readonly intermediateKeyPem: string
  /** The same intermediate, signed by the root before; null if there is none, or it has ended. */
  readonly crossPem: string | null
}

/** A root certificate and its private key. PEM. */
export type RootCa = Pick<NewAuthority, 'rootPem' | 'rootKeyPem'>

/** An organisation's CA that can issue: the intermediate signs, the root's key stays sealed. */
export interface IssuingAuthority {
  readonly rootPem: string
  readonly intermediatePem: string
  /** Lower-case hex SHA-256 of the intermediate's DER: the name of this CA. */
  readonly digest: string
  /** The CA certificates that the service sends after its own. PEM. */
  readonly serverChainPem: string
  /** O of the intermediate's subject: the only organisation it issues for. */
  readonly organisation: string
  /** The only trust domain that the intermediate's name constraint permits, or null for any. */
  readonly trustDomain: string | null
  /** The end of the intermediate: nothing that it issues lives longer. ms since the epoch. */
  readonly notAfter: number
  readonly signer: CertificateSigner
}

export interface NewAuthorityOptions {
  /** The `<org>` of its SPIFFE ids. At most 53 characters: a common name must also hold ` Issuing CA`. */
  readonly organisation: string
  /**
   * The only trust domain: if given, the intermediate carries a critical name constraint and signs for no
   * other.
   */
  readonly trustDomain?: string
  /** The root to make the intermediate under. Default: a new one. */
  readonly under?: RootCa
  /**
   * The root before the new one. It signs the new intermediate too, so that clients who know nothing else yet
   * verify the service.
   */
  readonly before?: RootCa
  /** ms since the epoch. */
  readonly at: number
}

const ROOT_YEARS = 10
const INTERMEDIATE_YEARS = 5
const ORGANISATION_LIMIT = COMMON_NAME_LIMIT - ' Issuing CA'.length
const URI_NAME = 6

const generate = promisify(generateKeyPair)

/** Makes an EC P-256 key pair: the kind of every key this service makes. */
export async function newKeyPair(): Promise<{ publicKey: KeyObject; privateKey: KeyObject; pem: string }> {
  const { publicKey, privateKey } = await generate('ec', { namedCurve: 'P-256' })
  return { publicKey, privateKey, pem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

/**
 * Makes an organisation's root (10 years, one CA below it) and intermediate (5 years, none below it; never
 * longer than its root). Throws an Error if the organisation or trust domain cannot stand in a SPIFFE id, or
 * the root that is given has ended. Writes nothing.
 */
export async function createAuthority(options: NewAuthorityOptions): Promise<NewAuthority> {
  const { organisation, trustDomain, under, before, at } = options
  printSpiffeId({ trustDomain: trustDomain ?? 'any', org: organisation, name: 'any' })
  if (organisation.length > ORGANISATION_LIMIT) {
    throw new Error(`the organisation is longer than ${ORGANISATION_LIMIT} characters`)
  }
  const { rootPem, rootKeyPem } = under ?? (await createRoot(organisation, at))
  const { publicKey, pem: intermediateKeyPem } = await newKeyPair()
  const signedBy = (root: RootCa): string | null => {
    const notAfter = firstCertificateOf(root.rootPem).validToDate.getTime()
    if (at >= notAfter) return null
    const plan = {
      ...{ organisation, publicKey, notBefore: at - BACK_DATED_MS },
      commonName: `${organisation} Issuing CA`,
      notAfter: Math.min(yearsAfter(at, INTERMEDIATE_YEARS), notAfter),
      extensions: [authorityConstraints(0), certSignKeyUsage(), ...trustDomainConstraints(trustDomain)],
    }
    return buildCertificate(plan, rootSigner(root)).toString()
  }
  const intermediatePem = signedBy({ rootPem, rootKeyPem })
  if (intermediatePem === null) throw new Error('the root certificate has ended: make a new root too')
  const crossPem = before ? signedBy(before) : null
  return { rootPem, rootKeyPem, intermediatePem, intermediateKeyPem, crossPem }
}

async function createRoot(organisation: string, at: number): Promise<RootCa> {
  const { publicKey, privateKey, pem } = await newKeyPair()
  const plan = {
    ...{ organisation, publicKey, notBefore: at - BACK_DATED_MS },
    commonName: `${organisation} Root CA`,
    notAfter: yearsAfter(at, ROOT_YEARS),
    extensions: [authorityConstraints(1), certSignKeyUsage()],
  }
  return { rootPem: buildCertificate(plan, { selfKey: privateKey }).toString(), rootKeyPem: pem }
}

const rootSigner = ({ rootPem, rootKeyPem }: RootCa): CertificateSigner => ({
  certificate: readCertificate(firstCertificateOf(rootPem).raw),
  key: createPrivateKey(rootKeyPem),
})

/** Throws one sentence unless a private key is the root's: whoever lacks it may not say whom clients trust. */
export function checkRootKey({ rootPem, rootKeyPem }: RootCa): void {
  if (firstCertificateOf(rootPem).checkPrivateKey(createPrivateKey(rootKeyPem))) return
  throw new Error('the private key does not belong to the root certificate')
}

// A URI constraint without a leading dot is one exact host (RFC 5280 §4.2.1.10), here the trust domain.
function trustDomainConstraints(trustDomain: string | undefined) {
  return trustDomain === undefined
    ? []
    : [permittedNameConstraints(new GeneralName({ type: URI_NAME, value: trustDomain }))]
}

function yearsAfter(at: number, years: number): number {
  const date = new Date(at)
  return date.setUTCFullYear(date.getUTCFullYear() + years)
}

/**
 * Makes an authority ready to issue. Throws one sentence if one of the texts cannot be read, the intermediate
 * is no CA or is not signed by the root, or the key is not an EC key or not the intermediate's. Looks at NO
 * dates: issuing does.
 */
export async function loadAuthority(
  parts: Pick<NewAuthority, 'rootPem' | 'intermediatePem' | 'intermediateKeyPem'>,
): Promise<IssuingAuthority> {
  const root = firstCertificateOf(parts.rootPem)
  const intermediate = firstCertificateOf(parts.intermediatePem)
  const certificate = readCertificate(intermediate.raw)
  if (!isCaCertificate(root)) throw new Error('the root certificate is not a CA certificate')
  if (!isCaCertificate(intermediate)) throw new Error('the intermediate certificate is not a CA certificate')
  if (!intermediate.checkIssued(root) || !intermediate.verify(root.publicKey)) {
    throw new Error('the intermediate certificate is not signed by the root')
  }
  const organisation = subjectAttributeOf(certificate, OID.organisation)
  if (organisation === null) throw new Error('the intermediate certificate names no organisation (O)')
  return {
    rootPem: parts.rootPem,
    intermediatePem: parts.intermediatePem,
    digest: thumbprintOf(intermediate.raw),
    serverChainPem: parts.intermediatePem,
    organisation,
    trustDomain: permittedTrustDomain(intermediate),
    notAfter: intermediate.validToDate.getTime(),
    signer: { certificate, key: signingKey(intermediate, parts.intermediateKeyPem) },
  }
}

function signingKey(intermediate: X509Certificate, pem: string): KeyObject {
  const key = readKey(pem)
  if (!intermediate.checkPrivateKey(key))
    throw new Error('the private key does not belong to the intermediate certificate')
  if (key.asymmetricKeyType !== 'ec')
    throw new Error('the intermediate has no EC key, and this service signs with nothing else')
  return key
}

function readKey(pem: string): KeyObject {
  try {
    return createPrivateKey(pem)
  } catch (cause) {
    throw new Error('the private key of the intermediate cannot be read', { cause })
  }
}

/** Tells whether basicConstraints says CA. Throws an Error if the extension is malformed. */
export function isCaCertificate(certificate: X509Certificate): boolean {
  const read = readCertificate(certificate.raw)
  return extensionOf(read, OID.basicConstraints, (schema) => new BasicConstraints({ schema }).cA) ?? false
}

function permittedTrustDomain(intermediate: X509Certificate): string | null {
  const constraints = extensionOf(
    readCertificate(intermediate.raw),
    OID.nameConstraints,
    (schema) => new NameConstraints({ schema }),
  )
  const permitted = (constraints?.permittedSubtrees ?? []).filter(({ base }) => base.type === URI_NAME)
  const [only] = permitted
  return only && permitted.length === 1 ? String(only.base.value) : null
}
