import { createPrivateKey, type X509Certificate } from 'node:crypto'
import { mkdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { firstCertificateOf } from '../x509/x509.ts'
import {
  createAuthority,
  type IssuingAuthority,
  loadAuthority,
  type NewAuthorityOptions,
} from './authority.ts'
import { issueServerCertificate } from './issue.ts'
import { deriveAhead, nullIfMissing, readPrivateFile, seal, unseal, writePrivateFile } from './key-store.ts'
import { isForNames } from './server-names.ts'
import { commitFiles, completeStagedFiles, missingIn } from './staged-files.ts'

export interface AuthorityFiles extends NewAuthorityOptions {
  readonly directory: string
  readonly passphrase: string
}

export interface ServerCertificateFiles {
  readonly directory: string
  readonly authority: IssuingAuthority
  readonly passphrase: string
  /** Host names and IP addresses. */
  readonly hostnames: readonly string[]
  /** ms since the epoch. */
  readonly at: number
}

export interface ServerCertificate {
  /** The leaf, then the intermediate. */
  readonly certPem: string
  /** PKCS#8. */
  readonly keyPem: string
  /** ms since the epoch. */
  readonly notAfter: number
  /** True if this call made it. */
  readonly issued: boolean
}

/** The files of a CA. */
export const AUTHORITY_FILES = [
  'root.key.sealed',
  'intermediate.key.sealed',
  'root.crt',
  'intermediate.crt',
] as const

/** The life of the service's own certificate; a new one is made when less than a third is left. Days. */
const SERVER_DAYS = 90

/**
 * Opens the organisation's CA in a directory: `root.crt`, `root.key.sealed`, `intermediate.crt`,
 * `intermediate.key.sealed`. Makes it if none of them exists (`created`; mode 0600, the directory 0700). A
 * crash while making leaves nothing, or a complete set that the next call moves into place. Throws one
 * sentence if some are missing, unreadable, readable by others, sealed with another passphrase, or made for
 * another organisation or trust domain: never a second CA alongside a first. The root's key is not opened. An
 * EMPTY directory always gets a new CA: the caller knows whether one was expected.
 */
export async function openAuthority(
  options: AuthorityFiles,
): Promise<{ readonly authority: IssuingAuthority; readonly created: boolean }> {
  const { directory } = options
  await makeDirectory(directory)
  await completeStagedFiles(directory, AUTHORITY_FILES)
  const missing = await missingIn(directory, AUTHORITY_FILES)
  if (missing.length === 0) return { authority: await load(options), created: false }
  if (missing.length < AUTHORITY_FILES.length) {
    const what = `the CA in ${directory} is incomplete, without ${missing.join(', ')}`
    throw new Error(
      `${what}: restore it from a backup; a new CA would lock out every certificate of this one`,
    )
  }
  const { texts } = await sealedAuthority(options)
  await commitFiles(directory, new Map(Object.entries(texts)))
  return { authority: await load(options), created: true }
}

async function makeDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const { mode } = await stat(directory)
  // A user who can write here can put another root in place.
  if ((mode & 0o022) !== 0) {
    throw new Error(`${directory} can be written by users other than its owner: run chmod 700 ${directory}`)
  }
}

/** The texts of a CA's files by their names, the keys sealed. */
export type AuthorityTexts = Readonly<Record<(typeof AUTHORITY_FILES)[number], string>>

/**
 * Makes a CA: its files by their names, the keys sealed. Throws as `createAuthority` does. Writes nothing.
 */
export async function sealedAuthority(
  options: NewAuthorityOptions & Pick<AuthorityFiles, 'passphrase'>,
): Promise<{ readonly texts: AuthorityTexts; readonly crossPem: string | null }> {
  const { passphrase } = options
  const made = await createAuthority(options)
  const texts = {
    'root.key.sealed': seal(made.rootKeyPem, passphrase),
    'intermediate.key.sealed': seal(made.intermediateKeyPem, passphrase),
    'root.crt': made.rootPem,
    'intermediate.crt': made.intermediatePem,
  }
  return { texts, crossPem: made.crossPem }
}

async function load({
  directory,
  passphrase,
  organisation,
  trustDomain,
}: AuthorityFiles): Promise<IssuingAuthority> {
  const sealed = await readPrivateFile(join(directory, 'intermediate.key.sealed'))
  // Not opened, but a root key that others can read is a CA that others hold.
  await readPrivateFile(join(directory, 'root.key.sealed'))
  const rootPem = await readFile(join(directory, 'root.crt'), 'utf8')
  const intermediatePem = await readFile(join(directory, 'intermediate.crt'), 'utf8')
  await deriveAhead(sealed, passphrase)
  const authority = await withErrorPrefix(`the CA in ${directory}`, () =>
    loadAuthority({ rootPem, intermediatePem, intermediateKeyPem: unseal(sealed, passphrase) }),
  )
  if (authority.organisation !== organisation) {
    throw new Error(
      `the CA in ${directory} belongs to the organisation ${authority.organisation}, not ${organisation}`,
    )
  }
  if (trustDomain !== undefined && authority.trustDomain !== null && authority.trustDomain !== trustDomain) {
    throw new Error(
      `the CA in ${directory} belongs to the trust domain ${authority.trustDomain}, not ${trustDomain}`,
    )
  }
  return authority
}

/**
 * Opens the certificate of this service's TLS endpoint: `server.crt` (chain) and `server.key.sealed` in the
 * directory. Makes a new one if a file is missing, the certificate is damaged or not the key's, the names
 * differ, another intermediate signed it, it is not valid yet, less than a third of its life is left, or its
 * key was sealed before the passphrase was rotated. Throws if the key is readable by others.
 */
export async function openServerCertificate(files: ServerCertificateFiles): Promise<ServerCertificate> {
  const keyPath = join(files.directory, 'server.key.sealed')
  const certPem = await nullIfMissing(readFile(join(files.directory, 'server.crt'), 'utf8'))
  const sealed = await nullIfMissing(readPrivateFile(keyPath))
  if (certPem === null || sealed === null) return makeServerCertificate(files)
  const leaf = usableLeaf(certPem, files)
  if (leaf === null) return makeServerCertificate(files)
  await deriveAhead(sealed, files.passphrase)
  // The passphrase is right: it has opened the CA.
  const keyPem = nullIfDamaged(() => unseal(sealed, files.passphrase))
  if (keyPem === null || !leaf.checkPrivateKey(createPrivateKey(keyPem))) return makeServerCertificate(files)
  return { certPem, keyPem, notAfter: leaf.validToDate.getTime(), issued: false }
}

async function makeServerCertificate(files: ServerCertificateFiles): Promise<ServerCertificate> {
  const { directory, authority, hostnames, passphrase, at } = files
  const issued = await issueServerCertificate(authority, hostnames, { at, days: SERVER_DAYS })
  // A crash between the two leaves a key that is not the certificate's: the next call makes both again.
  await writePrivateFile(join(directory, 'server.key.sealed'), seal(issued.privateKeyPem, passphrase))
  await writePrivateFile(join(directory, 'server.crt'), issued.chainPem)
  return { certPem: issued.chainPem, keyPem: issued.privateKeyPem, notAfter: issued.notAfter, issued: true }
}

/** Returns the leaf of a chain that can still serve, or null. */
function usableLeaf(
  certPem: string,
  { authority, hostnames, at }: ServerCertificateFiles,
): X509Certificate | null {
  const leaf = nullIfDamaged(() => firstCertificateOf(certPem))
  if (leaf === null || !certPem.endsWith(authority.serverChainPem)) return null
  const signed = leaf.verify(firstCertificateOf(authority.intermediatePem).publicKey)
  const notBefore = leaf.validFromDate.getTime()
  const notAfter = leaf.validToDate.getTime()
  const young = at >= notBefore && (notAfter - at) * 3 >= notAfter - notBefore
  return signed && young && isForNames(leaf.raw, hostnames) ? leaf : null
}

/** Reads what is made again if it is damaged, unlike a CA: null then. */
function nullIfDamaged<T>(read: () => T): T | null {
  try {
    return read()
  } catch {
    return null
  }
}

/** Puts `what` before an error's sentence, to name the file that it is about. */
async function withErrorPrefix<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    throw new Error(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
  }
}
