import { readFileSync } from 'node:fs'
import type { ConnectionOptions } from 'node:tls'
import { caFileOf } from '../support/ca-file.ts'
import { clientKeyFault } from '../support/client-key.ts'
import { messageOf } from '../support/error-message.ts'

export interface DatabaseProtection {
  /** The mode that the URL names, else the mode of `PGSSLMODE`; null: neither names one. */
  readonly sslmode: string | null
  /** True: TLS, and the server's certificate is verified, by its name. False: plain text. */
  readonly encrypted: boolean
  /** The server is on this machine, so that nothing goes over a network. */
  readonly local: boolean
}

/** Modes of libpq but `disable`. Each is verified as `verify-full`: a weaker one protects nothing. */
const ENCRYPTED: readonly string[] = ['allow', 'prefer', 'require', 'verify-ca', 'verify-full']

/** Parameters by which the driver, and no libpq, would verify less than `sslmode` says. */
const DRIVERS_OWN = ['ssl', 'uselibpqcompat']

/** Parameters of TLS, which the driver takes for a demand of it. */
const OF_TLS = ['sslrootcert', 'sslcert', 'sslkey']

/** Every parameter of TLS that is read here or by the driver. Any other would be left out without a word. */
const READ_OF_TLS: readonly string[] = ['sslmode', 'sslnegotiation', ...OF_TLS]
const LOOKS_LIKE_TLS = /ssl|tls/i

/** Parameters that mean nothing without TLS. */
const DEMANDS_TLS: readonly (readonly [name: string, value: string])[] = [
  ['sslnegotiation', 'direct'],
  ['channel_binding', 'require'],
]

/**
 * Reads the protection that a URL `postgres://…` asks for (docs/operating.md#database-tls). Throws one
 * sentence if that is not clear; never the URL, which may hold a password.
 */
export function protectionOf(url: string, env = process.env): DatabaseProtection {
  const { hostname, searchParams } = asUrl(url)
  for (const name of DRIVERS_OWN)
    if (searchParams.has(name))
      throw new Error(
        `MCP_PROXY_DATABASE_URL: ${name} is not supported: write sslmode=verify-full or sslmode=disable`,
      )
  for (const name of searchParams.keys())
    if (LOOKS_LIKE_TLS.test(name) && !READ_OF_TLS.includes(name))
      throw new Error(
        `MCP_PROXY_DATABASE_URL: ${JSON.stringify(name.slice(0, 32))} is not supported: leave it out, and write sslmode=verify-full or sslmode=disable`,
      )
  if (searchParams.getAll('sslrootcert').includes('system'))
    throw new Error(
      'MCP_PROXY_DATABASE_URL: sslrootcert=system is not supported: leave it out for public CAs, or name a file',
    )
  const modes = searchParams.getAll('sslmode')
  if (modes.length > 1) throw new Error('MCP_PROXY_DATABASE_URL has sslmode twice: keep one')
  const [stated] = modes
  const sslmode = stated ?? (env.PGSSLMODE || null)
  const by = stated === undefined ? 'PGSSLMODE' : 'MCP_PROXY_DATABASE_URL: sslmode'
  if (sslmode !== null && sslmode !== 'disable' && !ENCRYPTED.includes(sslmode))
    throw new Error(
      `${by}=${JSON.stringify(sslmode.slice(0, 32))} is not supported: write verify-full or disable`,
    )
  const asksForTls = OF_TLS.some((name) => searchParams.has(name))
  if (sslmode === 'disable' && asksForTls)
    throw new Error('MCP_PROXY_DATABASE_URL: sslmode=disable and certificates contradict each other')
  const encrypted = asksForTls || (sslmode ?? 'disable') !== 'disable'
  const [demand] = DEMANDS_TLS.filter(([name, value]) => searchParams.getAll(name).includes(value))
  if (demand && !encrypted)
    throw new Error(
      `MCP_PROXY_DATABASE_URL: ${demand.join('=')} means nothing without TLS: write sslmode=verify-full`,
    )
  const host = searchParams.get('host') ?? decodeURIComponent(hostname)
  if (host.includes(',')) throw new Error(SEVERAL_HOSTS)
  return { sslmode, encrypted, local: isLocal(host) }
}

/**
 * Finds out why the files of TLS that a URL names could not be used: one sentence, or null. Reads them. Does
 * NOT tell of single blocks of `sslrootcert`: {@link oddDatabaseCas} does.
 */
export function tlsFilesFault(url: string): string | null {
  const { searchParams } = asUrl(url)
  const [ca, cert, key] = OF_TLS.map((name) => searchParams.get(name)) as (string | null)[]
  try {
    if (ca && caFileOf(readFileSync(ca, 'utf8'), 0).cas.length === 0)
      return `MCP_PROXY_DATABASE_URL: no CA was read from sslrootcert=${ca}: name a file of certificates in PEM`
    if (!cert && !key) return null
    if (!cert || !key) return 'MCP_PROXY_DATABASE_URL: sslcert and sslkey belong together: name both'
    const fault = clientKeyFault(readFileSync(cert), readFileSync(key))
    return fault && `the client certificate of MCP_PROXY_DATABASE_URL cannot be used: ${fault}`
  } catch (error) {
    return `MCP_PROXY_DATABASE_URL: a file of sslrootcert, sslcert or sslkey cannot be read: ${messageOf(error)}. Name one that the gateway may read`
  }
}

/**
 * Lists the blocks of a URL's `sslrootcert` that vouch for nobody, each as a sentence. The others count.
 * `at`: ms since the epoch.
 */
export function oddDatabaseCas(url: string, at: number): readonly string[] {
  const file = asUrl(url).searchParams.get('sslrootcert')
  if (!file || tlsFilesFault(url) !== null) return []
  return caFileOf(readFileSync(file, 'utf8'), at).odd.map(
    (fault) => `${fault}: take it out of sslrootcert=${file}`,
  )
}

/** The URL as the driver reads it: a host may be missing if a parameter or a socket is named. */
function asUrl(url: string): URL {
  const parsed = URL.parse(url) ?? URL.parse(url.replace('@/', '@localhost/'))
  const fault = urlFault(url, parsed)
  if (fault !== null) throw new Error(fault)
  if (!parsed) throw new Error('MCP_PROXY_DATABASE_URL cannot be read as a URL: is its port a number?')
  return parsed
}

const SEVERAL_HOSTS =
  'MCP_PROXY_DATABASE_URL names several hosts: name one, which leads to the primary (a name in DNS, a pooler or a proxy)'

/** Says which character of a URL makes it another one than was meant; null if none does. */
function urlFault(url: string, parsed: URL | null): string | null {
  const [, authority = '', rest = ''] = /^[a-z]+:\/\/([^/?#]*)(.*)$/is.exec(url) ?? []
  if (url.includes('#')) return unescaped('#')
  const host = authority.slice(authority.lastIndexOf('@') + 1)
  // A password ends at the first of these, and its @ then stands after it.
  const isCut = !authority.includes('@') && authority.includes(':') && /^[/?].*@/.test(rest)
  if (isCut && (parsed === null || hasUserLater(parsed))) return unescaped(rest.charAt(0))
  return host.includes(',') ? SEVERAL_HOSTS : null
}

/** Tells whether an @ stands where none does, which is after the host. */
const hasUserLater = ({ pathname, searchParams }: URL): boolean =>
  pathname.includes('@') || [...searchParams.keys()].some((name) => name.includes('@'))

const unescaped = (character: string): string =>
  `MCP_PROXY_DATABASE_URL has ${JSON.stringify(character)} where it ends a part of the URL: in a user name or password write ${encodeURIComponent(character)}`

/** A socket's directory, or an address of this machine. Nothing at all is a socket. */
const isLocal = (host: string): boolean =>
  host === '' || host.startsWith('/') || /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/.test(host)

/** The parts of a connection's configuration that its URL has no say in any more. */
export interface DriverTls {
  readonly connectionString: string
  readonly ssl: ConnectionOptions | false
  readonly sslnegotiation?: 'direct'
}

/**
 * Gives the driver the TLS of a URL, and the URL without it: the driver would take less of a file of CAs than
 * is sound. The files are read for each connection, since they are renewed while the gateway runs; one that is
 * away at that moment counts as it was.
 */
export function driverTls(url: string): DriverTls {
  const isDirect = /[?&]sslnegotiation=direct(?=&|$)/.test(url)
  const connectionString = url.replace(
    /([?&])ssl(?:(?:mode|rootcert|cert|key)(?:=[^&]*)?|negotiation=direct)(?=&|$)/g,
    '$1',
  )
  if (!protectionOf(url).encrypted) return { connectionString, ssl: false }
  const { searchParams } = asUrl(url)
  const [ca, cert, key] = OF_TLS.map((name) => lastRead(searchParams.get(name)))
  const ssl = {
    get ca() {
      const pem = ca?.()
      return pem === undefined ? undefined : [...caFileOf(pem, 0).cas]
    },
    get cert() {
      return cert?.()
    },
    get key() {
      return key?.()
    },
  }
  return { connectionString, ssl, ...(isDirect && { sslnegotiation: 'direct' as const }) }
}

/** Reads a file whenever it is asked for. */
function lastRead(file: string | null): () => string | undefined {
  if (!file) return () => undefined
  let last = readFileSync(file, 'utf8')
  return () => {
    try {
      last = readFileSync(file, 'utf8')
    } catch {
      // The driver asks in the middle of a connection, where nobody would hear an error.
    }
    return last
  }
}
