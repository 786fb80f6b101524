import { z } from 'zod'
import { isSecretReference, SECRET_REFERENCE_RULE } from '../../egress/secret-reference.ts'

const MAX_DOMAINS = 32
const MAX_URL_LENGTH = 2048

// `http.get` is a tool of our own, and a resource named `http` could offer another.
const RESERVED: readonly string[] = ['http', 'http.get']

export const resourceName = z
  .string()
  .regex(
    /^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,64}$/,
    'must be 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen, and not "." or ".."',
  )
  .refine((text) => !RESERVED.includes(text), 'is reserved by this service')

/** An endpoint as `new URL()` writes it. Does NOT say if this gateway would connect to it. */
export const endpointUrl = z
  .string()
  .max(MAX_URL_LENGTH)
  // URL() would drop the white space and hide the rest.
  .regex(/^https?:\/\/[^\s\p{C}#\\]+$/iu, 'must be an http or https URL without white space or fragment')
  .transform((text, context) => {
    const url = URL.parse(text)
    const fault = url ? urlFault(url, text) : 'is not a URL'
    if (url && fault === null) return url.href
    // Not repeated: it may hold a password.
    context.addIssue({ code: 'custom', message: fault ?? 'is not a URL' })
    return z.NEVER
  })

function urlFault(url: URL, text: string): string | null {
  const authority = /^https?:\/\/([^/?]*)/i.exec(text)?.[1] ?? ''
  if (authority.includes('@'))
    return 'must not contain a user name or password: name the secret in auth_secret_ref'
  return url.href.length > MAX_URL_LENGTH ? `must be at most ${MAX_URL_LENGTH} characters long` : null
}

/** The place of a secret. A text that looks like a secret itself is refused, and not repeated. */
export const secretRef = z.string().refine(isSecretReference, SECRET_REFERENCE_RULE)

const domain = z.string().transform((text, context) => {
  const url = /^(\[[0-9a-f:.]+\]|[^\s\p{C}/\\@?#%:*[\]]+)$/iu.test(text) ? URL.parse(`http://${text}/`) : null
  if (url && url.hostname.length <= 253) return url.hostname
  context.addIssue({ code: 'custom', message: 'must be a host name, without scheme, port and path' })
  return z.NEVER
})

/** Host names as `new URL()` writes them, each once. */
export const domains = z
  .array(domain)
  .max(MAX_DOMAINS)
  .transform((all) => [...new Set(all)])

/** The description of a resource: shown to people as `displayName` is, and longer. */
export const description = z
  .string()
  .max(1024)
  .regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u, 'must not contain control or formatting characters')

export const authType = z.enum(['none', 'bearer', 'api_key', 'mtls'])
