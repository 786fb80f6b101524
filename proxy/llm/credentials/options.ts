import { isAbsolute } from 'node:path'
import { z } from 'zod'

const absolutePath = z
  .string()
  .max(4096)
  .refine((path) => isAbsolute(path) && !path.includes('\0'), 'must be an absolute path')

const text = z
  .string()
  .min(1)
  .max(4096)
  .regex(/^[^\0]*$/, 'must not hold a NUL character')

const tokenUrl = z
  .string()
  .max(2048)
  .refine((url) => isTokenUrl(url), 'must be an https URL without credentials or fragment')
  .describe('Where tokens are issued. http:// is accepted on this machine alone. Redirects are not followed.')

export function isTokenUrl(text: string): boolean {
  const url = URL.parse(text)
  if (!url || url.username || url.password || text.includes('#')) return false
  return url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.test(url.hostname))
}

const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/

/** The options of keys that expire, or that others write. */
export const credentialOptions = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('file'),
    path: absolutePath.describe('A file with the key alone. It is read again when it has changed.'),
  }),
  z.strictObject({
    kind: z.literal('exec'),
    command: z
      .array(text)
      .min(1)
      .max(64)
      .refine(([program = '']) => isAbsolute(program), 'must begin with the absolute path of a program')
      .describe(
        'A program and its arguments, run without a shell, for at most 10 s. It prints a token, or ' +
          '{"token": …, "expires_at": …} (RFC 3339, or seconds since 1970), at most 16 KiB.',
      ),
    env: z
      .array(z.string().regex(/^[A-Za-z_]\w{0,127}$/, 'must be the name of a variable'))
      .max(50)
      .default([])
      .describe('The variables of the gateway that the program gets. Default: none.'),
  }),
  z.strictObject({
    kind: z.literal('oauth2'),
    token_url: tokenUrl,
    client_id: text,
    client_secret: text,
    scope: text.optional(),
  }),
  z.strictObject({
    kind: z.literal('google'),
    key_file: absolutePath.describe('The JSON key of a service account.'),
  }),
])

export type CredentialOptions = z.output<typeof credentialOptions>
