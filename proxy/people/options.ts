import { z } from 'zod'
import { callerCapabilities } from '../admin/operation/shapes.ts'
import { oidcOptions } from '../operators/options.ts'

const claimValue = z.string().min(1).max(256)

/** An address of a client's metadata document, or the beginning of some: `https://host/path*`. */
const documentPattern = z
  .string()
  .max(2048)
  .refine(isDocumentPattern, 'must be *, or an https URL, which may end in *: "https://claude.ai/*"')

function isDocumentPattern(text: string): boolean {
  if (text === '*') return true
  const url = URL.parse(text.replace(/\*$/, ''))
  return url?.protocol === 'https:' && !text.slice(0, -1).includes('*') && /^https:\/\/[^/@]+\//.test(text)
}

/** https, http of this machine, or a private scheme (RFC 8252 §7). */
const redirectUri = z.string().max(2048).refine(isRedirectUri, 'must be an absolute URI without fragment')

function isRedirectUri(text: string): boolean {
  const url = URL.parse(text)
  return url !== null && !text.includes('#') && !['javascript:', 'data:', 'vbscript:'].includes(url.protocol)
}

const registeredClient = z.strictObject({
  id: z.string().regex(/^[\w.-]{1,64}$/, 'must be 1 to 64 letters, digits, dots, hyphens and underscores'),
  name: z.string().min(1).max(128),
  redirect_uris: z.array(redirectUri).min(1).max(5),
})

const target = z.union([
  z.string().min(1).max(64),
  z.strictObject({
    set: callerCapabilities,
    create: z
      .literal(true)
      .describe('Makes a user of its own for each person, at the first sign-in. Nobody is in a set without.'),
  }),
])

/** The options of `65-people.yaml` (docs/people.md): how people sign in, and by which clients they call. */
export const peopleOptions = z.strictObject({
  sign_in: z
    .union([z.literal('operators'), oidcOptions.omit({ claim: true, map: true })])
    .default('operators')
    .describe('operators: the identity provider of 70-operators.yaml; or one of its own, of the same shape.'),
  claim: z
    .string()
    .min(1)
    .max(256)
    .default('email')
    .describe('The claim of the ID token that identifies a person: sub, email, groups, … Default email.'),
  map: z
    .record(claimValue, target)
    .default({})
    .describe(
      'By value of the claim: the name of a user who is enrolled, or a set of capabilities for a user that is made. ' +
        'Anybody without a value here gets nothing.',
    ),
  llm: z
    .enum(['off', 'key', 'none'])
    .default('off')
    .describe('LLM calls at this door: none of them, with a key that each call proves, or by bearer token.'),
  grant_hours: z
    .int()
    .min(1)
    .max(720)
    .default(12)
    .describe('The time after which a person signs in again. Default 12.'),
  clients: z
    .strictObject({
      allow: z
        .array(documentPattern)
        .max(100)
        .default([])
        .describe('Addresses of client metadata documents; "*": any. Default: none.'),
      registration: z
        .enum(['off', 'sealed'])
        .default('off')
        .describe('sealed: clients may register, and nothing is kept of them (RFC 7591). Default off.'),
      registered: z.array(registeredClient).max(100).default([]).describe('Public clients by name.'),
    })
    .prefault({}),
  id_jag: z
    .boolean()
    .default(false)
    .describe('Whether an ID-JAG of the identity provider is taken in place of a sign-in. Default false.'),
})

export type PeopleOptions = z.output<typeof peopleOptions>

/** The scopes that stand for all that a person holds, asked at each call. */
export const scopesOf = ({ llm }: Pick<PeopleOptions, 'llm'>): readonly string[] =>
  llm === 'off' ? ['mcp'] : ['mcp', 'llm']
