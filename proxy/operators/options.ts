import { z } from 'zod'
import { TWO_PERSON_KINDS } from '../../plugins/operators/capabilities.ts'
import { isGuardedUrl } from '../boot/networks.ts'

const claimValue = z.string().min(1).max(256)

/** https, or http on this machine alone: the provider's answers decide who administers. */
const issuer = z
  .string()
  .max(2048)
  .refine(
    isIssuer,
    'must be an https URL, or an http URL of this machine, without credentials, query or fragment',
  )
  .refine(
    (text) => !text.includes('/.well-known/'),
    'must be the issuer, which stands in the document at that address, and not the address of the document',
  )
  .describe('The identity provider, exactly as its discovery document and its tokens name it.')

function isIssuer(text: string): boolean {
  const url = URL.parse(text)
  if (!url || url.username || url.password || /[?#\s]/.test(text)) return false
  return isGuardedUrl(url)
}

/** A client of an identity provider. */
export const oidcOptions = z.strictObject({
  issuer,
  client_id: z.string().min(1).max(256),
  client_secret: z
    .string()
    .min(1)
    .max(1024)
    // biome-ignore lint/suspicious/noTemplateCurlyInString: what operators write
    .describe('By reference: ${env:NAME} or ${file:/path}. Sent to the provider alone.'),
  scopes: z
    .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,128}$/, 'must be a scope (RFC 6749 §3.3)'))
    .max(16)
    .default(['openid', 'email'])
    .refine((scopes) => scopes.includes('openid'), 'must hold openid')
    .describe('Asked of the provider. Default openid and email.'),
  claim: z
    .string()
    .min(1)
    .max(256)
    .default('email')
    .describe('The claim of the ID token that identifies a person: email, groups, … Default email.'),
  map: z
    .record(claimValue, z.string().min(1).max(64))
    .describe(
      'By value of the claim: the name of an operator who is enrolled, or viewer, granter, auditor, approver or owner: then an ' +
        'operator with that set is made for each person. Anybody without a value here gets nothing.',
    ),
  acr_values: z
    .array(claimValue)
    .max(16)
    .default([])
    .describe('The acr values that are good enough, and asked for. Empty: any.'),
  amr_values: z
    .array(claimValue)
    .max(16)
    .default([])
    .describe('Of these amr values a sign-in must have one. Empty: any.'),
  require_email_verified: z
    .boolean()
    .default(true)
    .describe('With claim: email, whether email_verified must be true. Default true.'),
})

const session = z
  .strictObject({
    idle_minutes: z.int().min(1).max(1440).default(15).describe('How long a session may be unused.'),
    absolute_hours: z.int().min(1).max(168).default(8).describe('How long a session lasts at most.'),
  })
  .prefault({})

/** The options of `70-operators.yaml` (docs/operators.md): how people sign in, and what needs two of them. */
export const operatorsOptions = z.strictObject({
  oidc: oidcOptions
    .exactOptional()
    .describe('Absent: operators sign in only by certificate and by the secret.'),
  session,
  two_person: z
    .array(z.enum(TWO_PERSON_KINDS))
    .default([])
    .describe(
      'The kinds of changes that a second operator must confirm, once there are two who could. grant, tools, operators ' +
        'and settings: what requires the capability of that name; settings also: the shared secret and the keys that sign; ' +
        'trust: the CAs that vouch for others, and for whom; stop_end: the end of a stop. Without operators among them, whoever holds admin.operators ' +
        'can make the second person.',
    ),
  require_rehearsal: z
    .enum(['always', 'when_refusing', 'never'])
    .default('never')
    .describe(
      'Which changes of authority must name their rehearsal in If-Rehearsed: all, or those that would refuse calls of the ' +
        'last 30 days that were allowed.',
    ),
})

export type OperatorsOptions = z.output<typeof operatorsOptions>
export type OidcOptions = z.output<typeof oidcOptions>
