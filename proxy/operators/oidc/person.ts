import { hash } from 'node:crypto'
import type { JWTPayload } from 'jose'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { ProviderIdentity as Identity } from '../../../db/operators/identities.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { OidcOptions } from '../options.ts'
import type { SignInContext } from '../signing-in.ts'

interface RefusedPerson {
  readonly error: SignInRefused
  readonly issuer: string
  readonly subject: string
}

/**
 * Records that somebody whom the provider has authenticated gets nothing: durable before it resolves. Nothing
 * of the row says who that is, unless it is an existing operator. Only so many of one person in a minute are
 * rows; the others are counted, as strangers are: nobody grows the chain by being refused.
 */
export async function recordRefusedSignIn(
  { context, refusedRows, anonymous }: Pick<SignInContext, 'context' | 'refusedRows' | 'anonymous'>,
  { error, issuer, subject }: RefusedPerson,
  { id, at }: Arrival,
): Promise<void> {
  const person = hash('sha256', `${issuer} ${subject}`)
  if (refusedRows.waitS(person) > 0) return anonymous.count('sign_in_refused')
  refusedRows.recordFailure(person)
  const detail = { via: 'oidc', reason: error.reason, issuer }
  const entry = serviceEntry('admin.sign_in_refused', 'denied', detail, at, context.configDigest)
  const whose = { principal_id: error.operator, principal_type: error.operator === null ? null : 'operator' }
  try {
    await context.ledger.commit({ entries: [{ ...entry, ...whose, request_id: id }] })
  } catch (cause) {
    throw cause instanceof LedgerError ? new Refusal('audit_unavailable', { cause }) : cause
  }
}

const MAX_CHARACTERS = 256
/** Most values of a claim that are read, and of `amr` that are kept. */
const MAX_VALUES = 1000
const MAX_AMR = 16

/** A person, as a verified ID token says it. */
export interface OidcPerson extends Identity {
  /** Values of the configuration's claim. */
  readonly values: readonly string[]
  readonly acr: string | null
  readonly amr: readonly string[]
  /** The `sid` of its session with the provider; null: the provider does not say it. */
  readonly providerSession: string | null
  /** For an operator that is made for it. */
  readonly name: string
}

/** Why somebody whom the provider has authenticated is refused all the same: `reason` of the row. */
export type SignInRefusalReason =
  | 'acr_not_accepted'
  | 'amr_not_accepted'
  | 'email_not_verified'
  | 'not_mapped'
  | 'ambiguous'
  | 'operator_unknown'
  | 'operator_deactivated'
  | 'name_taken'
  | 'last_owner'

/** A person whom the provider has authenticated, and who gets nothing. */
export class SignInRefused extends Error {
  readonly reason: SignInRefusalReason
  /** The operator that it would have been; null if that is nobody. */
  readonly operator: string | null

  constructor(reason: SignInRefusalReason, operator: string | null = null) {
    super(reason)
    this.reason = reason
    this.operator = operator
  }
}

/**
 * Reads a person from a verified ID token. Throws {@link SignInRefused} if the configuration asks for a
 * stronger sign-in, or for an e-mail address that the provider has verified.
 */
export function personOf(claims: JWTPayload & { readonly sub: string }, options: OidcOptions): OidcPerson {
  const { issuer, claim, acr_values: acrs, amr_values: amrs, require_email_verified: verified } = options
  const acr = textOf(claims.acr)
  const amr = textsOf(claims.amr).slice(0, MAX_AMR)
  if (acrs.length > 0 && (acr === null || !acrs.includes(acr))) throw new SignInRefused('acr_not_accepted')
  if (amrs.length > 0 && !amr.some((one) => amrs.includes(one))) throw new SignInRefused('amr_not_accepted')
  if (claim === 'email' && verified && claims.email_verified !== true)
    throw new SignInRefused('email_not_verified')
  const { sub: subject } = claims
  return {
    issuer,
    subject,
    values: SINGLE_VALUED.has(claim) && Array.isArray(claims[claim]) ? [] : textsOf(claims[claim]),
    acr,
    amr,
    providerSession: textOf(claims.sid),
    name: nameOf(claims, `${issuer} ${subject}`),
  }
}

/**
 * The claims of which a person has one (OpenID Connect Core 1.0 §2 and §5.1, and what Microsoft and Google add):
 * a list of them says of nobody who signs in. Any other may be one value or a list, as `groups` are.
 */
const SINGLE_VALUED: ReadonlySet<string> = new Set([
  ...['iss', 'sub', 'azp', 'jti', 'sid', 'nonce', 'acr', 'name', 'given_name', 'family_name', 'middle_name'],
  ...['nickname', 'preferred_username', 'profile', 'picture', 'website', 'email', 'gender', 'birthdate'],
  ...['zoneinfo', 'locale', 'phone_number', 'upn', 'unique_name', 'oid', 'tid', 'hd'],
])

const textOf = (value: unknown): string | null =>
  typeof value === 'string' && value !== '' && value.length <= MAX_CHARACTERS ? value : null

const textsOf = (value: unknown): readonly string[] =>
  (Array.isArray(value) ? value.slice(0, MAX_VALUES) : [value]).flatMap((one) => textOf(one) ?? [])

const MAX_NAME = 64
const UNSAFE = /[^a-zA-Z0-9._-]/g
/**
 * An address that its name keeps whole: the first hyphen of the name is the `@`, so no other address makes
 * the same name.
 */
const ADDRESS = /^([a-zA-Z0-9][a-zA-Z0-9._]*)@((?:[a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+)$/
/** The digits of the digest that keeps the names of two persons apart. */
const DIGEST_DIGITS = 16
const WITH_DIGEST = new RegExp(`-[0-9a-f]{${DIGEST_DIGITS}}$`)

/**
 * Makes the short name of an operator. A verified e-mail address makes a bare one, `ada-example.com`, and no
 * other address makes the same. Every other name is the person's own choice, and shows that: the name that it
 * likes, or the provider's own, with a digest of issuer and subject, which nobody else has.
 */
function nameOf(claims: JWTPayload, person: string): string {
  const email = claims.email_verified === true ? textOf(claims.email) : null
  const [, local, domain] = ADDRESS.exec(email ?? '') ?? []
  const bare = `${local}-${domain}`
  if (local !== undefined && bare.length <= MAX_NAME && !WITH_DIGEST.test(bare)) return bare
  const text = email ?? textOf(claims.preferred_username) ?? textOf(claims.sub) ?? ''
  const safe = text.replace('@', '-').replaceAll(UNSAFE, '_')
  const digest = hash('sha256', person).slice(0, DIGEST_DIGITS)
  return `${safe.slice(0, MAX_NAME - digest.length - 1)}-${digest}`
}
