import { hash } from 'node:crypto'
import { firstCertificateOf, thumbprintOf } from '../x509/x509.ts'
import { checkRootKey, type IssuingAuthority, loadAuthority } from './authority.ts'
import { type AuthorityTexts, sealedAuthority } from './files.ts'
import { deriveAhead, unseal } from './key-store.ts'

// A CA is replaced in phases (docs/operating.md#replace-the-ca): at any time one issues, and at most one other
// is trusted as well. What the database stores is one text, so that each step is one write: all of a phase, or
// the phase before.

/** `prepared`: the other CA comes next. `issuing`: it is being replaced. */
export type RotationPhase = 'prepared' | 'issuing'

/** The part of a CA that is made: the root too, or an intermediate under the same root. */
export type RotationScope = 'root' | 'intermediate'

/** The CA beside the one that issues. */
interface StoredRotation {
  readonly phase: RotationPhase
  readonly scope: RotationScope
  readonly ca: AuthorityTexts
  /** The newer intermediate, signed by the older root. */
  readonly cross: string | null
  /** RFC 3339. */
  readonly prepared_at: string
  readonly issued_at: string | null
}

/** A CA that signs and vouches for nothing any more. Digests are lower-case hex SHA-256 of the DER. */
export interface FinishedCa {
  readonly root_sha256: string
  readonly intermediate_sha256: string
  /** RFC 3339. */
  readonly finished_at: string
}

/** The CAs of an organisation as the database stores them: the files of the one that issues, and the rest. */
export interface StoredAuthority extends AuthorityTexts {
  /** The CAs that it takes the place of, by the SHA-256 of the text of a `root.crt` or `intermediate.crt`. */
  readonly replaces?: string | readonly string[]
  /** Counts the steps of rotations. */
  readonly revision?: number
  readonly rotation?: StoredRotation
  /** The last ones first. */
  readonly finished?: readonly FinishedCa[]
}

/** The most finished CAs that are remembered. */
const MAX_FINISHED = 20

/** The organisation's CA, and the one beside it while it is being replaced. */
export interface OrganisationAuthority extends IssuingAuthority {
  /** Every root that clients trust the service by, the issuing CA's first. PEM. */
  readonly rootsPem: string
  /** The issuing intermediate, the other one, and the roots. PEM. */
  readonly trustPem: string
  readonly rotation: OpenRotation | null
}

/** A rotation that is under way. */
export interface OpenRotation extends Pick<StoredRotation, 'phase' | 'scope' | 'prepared_at' | 'issued_at'> {
  readonly other: IssuingAuthority
}

/** Returns the CAs in use, of a CA that was opened and what is stored with it. Throws one sentence. */
export async function withRotation(
  issuing: IssuingAuthority,
  { rotation }: Pick<StoredAuthority, 'rotation'>,
  passphrase: string,
): Promise<OrganisationAuthority> {
  const { rootPem, intermediatePem } = issuing
  if (!rotation) {
    return { ...issuing, rootsPem: rootPem, trustPem: intermediatePem + rootPem, rotation: null }
  }
  const { phase, scope, ca, cross, prepared_at, issued_at } = rotation
  const other = await openStored(ca, passphrase)
  const rootsPem = other.rootPem === rootPem ? rootPem : rootPem + other.rootPem
  return {
    ...issuing,
    serverChainPem: phase === 'issuing' && cross !== null ? cross : intermediatePem,
    rootsPem,
    trustPem: intermediatePem + other.intermediatePem + rootsPem,
    rotation: { phase, scope, prepared_at, issued_at, other },
  }
}

/**
 * Opens a CA that the database stores. Throws one sentence if a key of it is not its own: whoever can write to
 * the database has no passphrase, and can name no root that clients shall trust.
 */
export async function openStored(ca: AuthorityTexts, passphrase: string): Promise<IssuingAuthority> {
  const rootPem = ca['root.crt']
  await deriveAhead(ca['root.key.sealed'], passphrase)
  checkRootKey({ rootPem, rootKeyPem: unseal(ca['root.key.sealed'], passphrase) })
  return loadAuthority({
    rootPem,
    intermediatePem: ca['intermediate.crt'],
    intermediateKeyPem: unseal(ca['intermediate.key.sealed'], passphrase),
  })
}

export interface PreparationOptions {
  readonly organisation: string
  readonly trustDomain?: string
  readonly scope: RotationScope
  readonly passphrase: string
  /** ms since the epoch. */
  readonly at: number
}

/** Makes the CA that comes next, beside the one that issues. Throws as `createAuthority` does. */
export async function prepareRotation(
  stored: StoredAuthority,
  { scope, ...options }: PreparationOptions,
): Promise<StoredAuthority> {
  const { passphrase, at } = options
  await deriveAhead(stored['root.key.sealed'], passphrase)
  const root = {
    rootPem: stored['root.crt'],
    rootKeyPem: unseal(stored['root.key.sealed'], passphrase),
  }
  const made = await sealedAuthority({
    ...options,
    ...(scope === 'root' ? { before: root } : { under: root }),
  })
  const rotation = { ca: made.texts, cross: made.crossPem, scope, prepared_at: timeOf(at), issued_at: null }
  return nextOf(stored, { rotation: { ...rotation, phase: 'prepared' } })
}

/** Has the CA beside the issuing one take its place: the next one, or the one before again. */
export function swapRotation(stored: StoredAuthority, at: number): StoredAuthority {
  const { rotation, replaces = [], ...rest } = stored
  if (!rotation) throw new Error('no CA is prepared')
  const { 'root.crt': rootCrt, 'intermediate.crt': intermediateCrt } = stored
  const ca = {
    'root.key.sealed': stored['root.key.sealed'],
    'intermediate.key.sealed': stored['intermediate.key.sealed'],
    ...{ 'root.crt': rootCrt, 'intermediate.crt': intermediateCrt },
  }
  const isPrepared = rotation.phase === 'prepared'
  return nextOf(
    {
      ...rest,
      ...rotation.ca,
      replaces: [...new Set([...[replaces].flat(), textDigest(intermediateCrt)])],
    },
    {
      rotation: {
        ...rotation,
        ca,
        phase: isPrepared ? 'issuing' : 'prepared',
        issued_at: isPrepared ? timeOf(at) : null,
      },
    },
  )
}

/** Ends the CA beside the issuing one, and its keys with it. */
export function endRotation(stored: StoredAuthority, at: number): StoredAuthority {
  const { rotation, finished = [], ...rest } = stored
  if (!rotation) throw new Error('no CA is prepared')
  const ended = { ...digestsOf(rotation.ca), finished_at: timeOf(at) }
  return nextOf(rest, { finished: [ended, ...finished].slice(0, MAX_FINISHED) })
}

/** The digests of a CA's certificates, as rows and callers name them. */
export const digestsOf = (
  ca: Pick<AuthorityTexts, 'root.crt' | 'intermediate.crt'>,
): Omit<FinishedCa, 'finished_at'> => ({
  root_sha256: thumbprintOf(firstCertificateOf(ca['root.crt']).raw),
  intermediate_sha256: thumbprintOf(firstCertificateOf(ca['intermediate.crt']).raw),
})

/** The SHA-256 of a certificate's text: what a data directory's copy of a CA is known by. */
export const textDigest = (pem: string): string => hash('sha256', pem)

const nextOf = (stored: StoredAuthority, change: Partial<StoredAuthority>): StoredAuthority => ({
  ...stored,
  ...change,
  revision: (stored.revision ?? 0) + 1,
})

const timeOf = (at: number): string => new Date(at).toISOString()
