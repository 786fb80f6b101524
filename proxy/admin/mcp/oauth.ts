import { z } from 'zod'
import type { FieldError } from '../../../db/capabilities.ts'
import type { Database } from '../../../db/database.ts'
import type { OAuthSettings } from '../../../db/mcp/accounts.ts'
import { findPrincipalOf, principalOfRef } from '../../../db/principals/read.ts'
import { hostRefusal } from '../../egress/address.ts'
import { isSecretReference, SECRET_REFERENCE_RULE } from '../../egress/secret-reference.ts'
import type { AdminContext } from '../operation/context.ts'

/** The place of a secret. A text that looks like a secret itself is refused, and not repeated. */
export const secretRef = z.string().refine(isSecretReference, SECRET_REFERENCE_RULE)

const MAX_SCOPES = 64

/** An issuer as its metadata writes it: compared to the letter (RFC 8414 §3.3), so nothing is normalized. */
const issuer = z
  .string()
  .max(2048)
  .regex(
    /^https?:\/\/[^\s\p{C}?#\\@]+$/iu,
    'must be an http or https URL without user name, query and fragment',
  )
  .refine((text) => URL.canParse(text), 'is not a URL')

// RFC 6749 §3.3 and appendix A: what stands in the parameters.
const clientId = z.string().regex(/^[\x20-\x7e]{1,1024}$/, 'must be 1 to 1,024 visible ASCII characters')
const scope = z
  .string()
  .regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/, 'must be a scope as OAuth writes it (RFC 6749)')

/** The `oauth` block of a server at which people have accounts (docs/accounts.md). */
export const oauthSettings = z
  .strictObject({
    issuer: issuer.exactOptional().meta({ description: 'Absent: found by the metadata of the server.' }),
    client_id: clientId
      .exactOptional()
      .meta({ description: 'Absent: the metadata document, or registration.' }),
    client_secret_ref: secretRef.exactOptional(),
    scopes: z
      .array(scope)
      .max(MAX_SCOPES)
      .default([])
      .transform((all) => [...new Set(all)]),
    reader: z
      .string({ error: 'is required: the principal whose account reads the definitions that are pinned' })
      .min(1)
      .max(256),
  })
  .meta({ description: 'The authorization server at which callers have accounts. For auth_type oauth.' })

/** The `oauth` block as operators see it. `reader`: null if that principal is erased. */
export const oauthView = z.strictObject({
  ...{ issuer: z.string().exactOptional(), client_id: z.string().exactOptional() },
  client_secret_ref: z.string().exactOptional(),
  scopes: z.array(z.string()),
  reader: z.string().nullable(),
})

const READERS = ['agent', 'user', 'workload'] as const

/** Puts the name of the ledger in the place of the reader's id: an erased user leaves no trace in a resource. */
export async function withReaderRef(
  { database }: Pick<AdminContext, 'database'>,
  settings: OAuthSettings,
): Promise<OAuthSettings | FieldError> {
  const reader = await findPrincipalOf(database, READERS, settings.reader)
  if (!reader) return { field: 'oauth.reader', message: 'is not a principal of this service' }
  return { ...settings, reader: reader.principal_ref }
}

/** Shows settings with the id of their reader. */
export async function oauthViewOf(
  database: Database,
  settings: OAuthSettings | null,
): Promise<z.output<typeof oauthView> | null> {
  if (settings === null) return null
  const reader = await principalOfRef(database, settings.reader)
  return { ...settings, scopes: [...settings.scopes], reader: reader?.principal_id ?? null }
}

/** Faults of settings that are each well-formed. */
export function oauthFaults(
  { issuer: at, client_id: client, client_secret_ref: secret }: OAuthSettings,
  { allowPrivateUpstreams, peopleUrl }: AdminContext['mcp'],
): readonly FieldError[] {
  const faults: FieldError[] = []
  if (peopleUrl === null)
    faults.push({
      field: 'oauth',
      message: 'needs the listener for people: set MCP_PROXY_PEOPLE_LISTEN and MCP_PROXY_PEOPLE_URL',
    })
  if (secret !== undefined && client === undefined)
    faults.push({ field: 'oauth.client_secret_ref', message: 'must be absent without client_id' })
  const fault = at === undefined ? null : issuerFault(new URL(at), allowPrivateUpstreams)
  return fault === null ? faults : [...faults, { field: 'oauth.issuer', message: fault }]
}

function issuerFault(url: URL, allowPrivate: boolean): string | null {
  const reason = hostRefusal(url, allowPrivate)
  if (reason !== null) return `names a host that this gateway does not connect to (${reason})`
  return url.protocol === 'https:' || hostRefusal(url, false) !== null ? null : 'must be an https URL'
}
