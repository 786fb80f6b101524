import { hash } from 'node:crypto'
import type { GrantClient } from '../../../db/people/grants.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import type { PeopleOptions } from '../options.ts'

/** The longest id of a client that registers itself. Characters. */
const MAX_SEALED_ID = 1_024
const MAX_REDIRECTS = 5
const MAX_NAME = 128
const SEALED = 'sealed.'
const PURPOSE = Buffer.from('sallyport people client')

const LOOPBACK: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]'])

/** Tells a redirect to this very machine, or to a program of it (RFC 8252 §7): whoever listens there gets it. */
export function isLocalRedirect(text: string): boolean {
  const url = URL.parse(text)
  if (!url) return false
  return url.protocol === 'http:' ? LOOPBACK.has(url.hostname) : url.protocol !== 'https:'
}

/**
 * Reduces what a client says of itself to what counts here: a public client, or one with keys of its own, that
 * redeems codes. Members that this service has no use for are left out, so that no document is refused for one.
 */
export function clientMetadata(said: UnknownRecord, grantTypes: readonly string[]): UnknownRecord {
  const { client_id, client_name, client_uri, redirect_uris, token_endpoint_auth_method, jwks, jwks_uri } =
    said
  const redirects = Array.isArray(redirect_uris) ? redirect_uris : []
  const isNative = redirects.some((uri) => typeof uri === 'string' && isLocalRedirect(uri))
  const hasKeys = token_endpoint_auth_method === 'private_key_jwt'
  return {
    client_id,
    ...(typeof client_name === 'string' && { client_name: client_name.slice(0, MAX_NAME) }),
    ...(typeof client_uri === 'string' && URL.parse(client_uri)?.protocol === 'https:' && { client_uri }),
    redirect_uris: redirects,
    response_types: ['code'],
    grant_types: [...grantTypes],
    application_type: isNative ? 'native' : 'web',
    token_endpoint_auth_method: hasKeys ? 'private_key_jwt' : (token_endpoint_auth_method ?? 'none'),
    ...(hasKeys && jwks !== undefined && { jwks }),
    ...(hasKeys && jwks_uri !== undefined && { jwks_uri }),
  }
}

/**
 * Makes the id of a client that registers itself: its metadata, sealed with 32 bytes. Nothing of it is kept.
 * Null: the id would be too long, or it has too many redirects.
 */
export function sealClient(key: Buffer, { client_name, redirect_uris }: UnknownRecord): string | null {
  if (!Array.isArray(redirect_uris) || redirect_uris.length > MAX_REDIRECTS) return null
  const text = JSON.stringify({ n: client_name, r: redirect_uris })
  if (text.length > MAX_SEALED_ID) return null
  const id = SEALED + sealBytes(key, text, PURPOSE).toString('base64url')
  return id.length > MAX_SEALED_ID ? null : id
}

/** Opens an id of {@link sealClient}; null for anything else. */
export function openClient(key: Buffer, id: string): UnknownRecord | null {
  if (!id.startsWith(SEALED) || id.length > MAX_SEALED_ID) return null
  try {
    const opened = openSealed(key, Buffer.from(id.slice(SEALED.length), 'base64url'), PURPOSE)
    const found: unknown = JSON.parse(opened.toString())
    return isObject(found) ? { client_id: id, client_name: found.n, redirect_uris: found.r } : null
  } catch {
    // Not sealed by us.
    return null
  }
}

/** Finds the rule that lets a client's document in; null: none does. */
export function documentRule({ clients }: Pick<PeopleOptions, 'clients'>, address: string): string | null {
  const covers = (rule: string): boolean =>
    rule.endsWith('*') ? address.startsWith(rule.slice(0, -1)) : address === rule
  // A rule that names this very document vouches for more than one that only covers it.
  return clients.allow.find((rule) => rule === address) ?? clients.allow.find(covers) ?? null
}

/** Finds a client that is registered by name or has sealed itself; undefined: neither. */
export const clientFinder =
  ({ clients }: Pick<PeopleOptions, 'clients'>, key: Buffer, grantTypes: readonly string[]) =>
  (id: string): object | undefined => {
    const named = clients.registered.find((client) => client.id === id)
    if (named)
      return clientMetadata(
        { client_id: id, client_name: named.name, redirect_uris: named.redirect_uris },
        grantTypes,
      )
    const opened = clients.registration === 'sealed' ? openClient(key, id) : null
    return opened ? clientMetadata(opened, grantTypes) : undefined
  }

/** The client of a grant, as rows and pages name it. `redirect`: where its code goes; null: it has none. */
export function grantClientOf(id: string, redirect: string | null): GrantClient {
  const kind = id.startsWith('https://') ? 'cimd' : id.startsWith(SEALED) ? 'sealed' : 'registered'
  const place = URL.parse(kind === 'cimd' ? id : (redirect ?? ''))
  return { host: place?.host || place?.protocol || id, idSha256: hash('sha256', id), kind }
}

/** Digest of all that a client says of itself: consent is for this. */
export const clientDigest = (metadata: object): string => hash('sha256', JSON.stringify(metadata))
