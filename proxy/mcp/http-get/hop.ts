import type { JsonObject } from '../../../db/support/json.ts'
import { hostRefusal } from '../../egress/address.ts'
import { hasDotSegment } from '../protocol/normal-uri.ts'

/** A fetch that failed. The message is for the caller, the rest for the outcome row. */
export class FetchFailure extends Error {
  readonly reason: string
  readonly detail: JsonObject

  constructor(reason: string, message: string, detail: JsonObject = {}) {
    super(message)
    this.name = 'FetchFailure'
    this.reason = reason
    this.detail = detail
  }
}

interface AllowedHost {
  readonly name: string
  /** True for `*.name`, which is every name below it and not itself. */
  readonly below: boolean
  /** Null: the usual ports. */
  readonly port: number | null
}

export type AllowedHosts = readonly AllowedHost[]

const USUAL_PORTS: ReadonlySet<number> = new Set([80, 443])
const ENTRY = /^(\*\.)?([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::(\d{1,5}))?$/

/** Reads `example.com`, `*.example.com` and either with `:port`. Throws an Error that names the entry. */
export function parseAllowedHosts(entries: readonly string[]): AllowedHosts {
  return entries.map((entry) => {
    const [, star, name, port] = ENTRY.exec(entry) ?? []
    if (name === undefined || (port !== undefined && (Number(port) === 0 || Number(port) > 65_535))) {
      throw new Error(`allowed_hosts: "${entry}" is not a lower-case host name, *.name or name:port`)
    }
    return { name, below: star !== undefined, port: port === undefined ? null : Number(port) }
  })
}

/** Refuses with {@link FetchFailure} a URL that is not listed. Does NOT judge the host's addresses. */
function checkAllowedHost(url: URL, allowed: AllowedHosts): void {
  const entries = allowed.filter((entry) => names(entry, url.hostname))
  if (allowed.length > 0 && entries.length === 0) {
    throw new FetchFailure('host_not_allowed', "This host is not on the operator's list of hosts.")
  }
  // Not `||`: port 0 is written, and is none of the usual ones.
  const port = url.port !== '' ? Number(url.port) : url.protocol === 'https:' ? 443 : 80
  const usual =
    USUAL_PORTS.has(port) && (allowed.length === 0 || entries.some((entry) => entry.port === null))
  if (!usual && !entries.some((entry) => entry.port === port)) {
    throw new FetchFailure('port_not_allowed', 'This port is not allowed.')
  }
}

function names({ name, below }: AllowedHost, hostname: string): boolean {
  return below ? hostname.endsWith(`.${name}`) : hostname === name
}

const MAX_URL_LENGTH = 2048

/**
 * Judges the URL that a caller asks for, without asking DNS (docs/protocol.md#http-get,
 * docs/threats.md#threat-19). It must be spelled as it will be connected to, so that a rule and the parser
 * see the same host, and its path must hold nothing to resolve (docs/threats.md#h1c). Refuses with {@link
 * FetchFailure}.
 */
export function firstHop(text: string, allowed: AllowedHosts): URL {
  const url = hopOf(text, allowed)
  const [, origin, path = ''] = ORIGIN_AND_PATH.exec(text) ?? []
  if (hasDotSegment(path)) throw malformed('whose path has a segment . or ..')
  if (ESCAPED_WORD.test(path)) throw malformed('whose path has a letter or digit as an escape (%)')
  if (origin !== url.origin) throw malformed(`that does not begin with ${url.origin}, as it is connected to,`)
  return url
}

const ORIGIN_AND_PATH = /^(https?:\/\/[^/?#]*)([^?#]*)/i
/** A letter or digit that a server reads and a rule sees as an escape (RFC 3986 §2.3). */
const ESCAPED_WORD = /%(?:3\d|[46][1-9a-f]|[57][\da])/i

function hopOf(text: string, allowed: AllowedHosts): URL {
  if (text.length > MAX_URL_LENGTH) throw malformed(`longer than ${MAX_URL_LENGTH} characters`)
  if (/[\x00-\x20\x7f\\]/.test(text)) throw malformed('with a space, a control character or a backslash')
  const authority = /^https?:\/\/([^/?#]*)/i.exec(text)?.[1]
  if (authority === undefined) throw malformed('other than http:// or https://')
  const url = URL.parse(text)
  if (!url) throw malformed('that cannot be read')
  if (url.username !== '' || url.password !== '') throw malformed('with a user name')
  const why = hostRefusal(url, false)
  if (why !== null) {
    throw new FetchFailure('host_refused', 'This host is not on the public internet.', { range: why })
  }
  if (!isPlain(authority.toLowerCase(), url)) throw malformed(`whose host is not spelled ${url.host}`)
  checkAllowedHost(url, allowed)
  return url
}

/** Judges the URL of a redirect: never from https to http. Refuses with {@link FetchFailure}. */
export function nextHop(current: URL, location: string, allowed: AllowedHosts): URL {
  const absolute = location.startsWith('//') ? current.protocol + location : location
  const hasScheme = /^[a-z][a-z0-9+.-]*:/i.test(absolute)
  const next = hopOf(hasScheme ? absolute : resolveReference(current, location), allowed)
  if (current.protocol === 'https:' && next.protocol === 'http:') {
    throw new FetchFailure('redirect_downgrade', 'The server redirects from https to http.')
  }
  return next
}

/** Resolves a reference without scheme or host, so that the host stays the one it was. */
function resolveReference(current: URL, reference: string): string {
  // Checked before the parser drops or turns them, and makes an authority of a path.
  if (/[\x00-\x20\x7f\\]/.test(reference)) throw malformed('with a space, a control character or a backslash')
  const next = URL.parse(reference, current.href)
  if (!next) throw malformed('that cannot be read')
  return next.href
}

function isPlain(authority: string, url: URL): boolean {
  const usualPort = url.protocol === 'https:' ? 443 : 80
  return authority === url.host || (url.port === '' && authority === `${url.host}:${usualPort}`)
}

const malformed = (how: string): FetchFailure =>
  new FetchFailure('url_refused', `A URL ${how} is not accepted.`)
