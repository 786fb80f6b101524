import { BlockList, isIP, isIPv6 } from 'node:net'
import type { Duplex } from 'node:stream'

/** An HTTP proxy that connections are tunnelled through (RFC 9110 §9.3.6). */
export interface EgressProxy {
  /** The URL without credentials: for operators and the log. */
  readonly shown: string
  readonly hostname: string
  readonly port: number
  /** True: it is spoken to over TLS. */
  readonly secure: boolean
  /** The value of `Proxy-Authorization`, a secret; null: none. */
  readonly authorization: string | null
}

/** A connection that was not made because of its proxy. The message is for the log, and holds no credentials. */
export class ProxyTunnelError extends Error {
  /** The status that the proxy answered with; null: none. */
  readonly status: number | null

  constructor(proxy: EgressProxy, problem: string, status: number | null = null, cause?: unknown) {
    super(`the proxy ${proxy.shown} ${problem}`, { cause })
    this.name = 'ProxyTunnelError'
    this.status = status
  }
}

/** Reads the URL of a proxy; null if it is none: http or https, a host, maybe a user, and no path. */
export function parseProxyUrl(text: string): EgressProxy | null {
  const url = URL.parse(text)
  const isProxy = url?.protocol === 'http:' || url?.protocol === 'https:'
  if (!url || !isProxy || url.pathname !== '/' || /[?#]/.test(text)) return null
  const secure = url.protocol === 'https:'
  return {
    shown: url.origin,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? (secure ? 443 : 80) : Number(url.port),
    secure,
    authorization: basicCredentials(url),
  }
}

function basicCredentials({ username, password }: URL): string | null {
  if (username === '' && password === '') return null
  try {
    const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
    return `Basic ${Buffer.from(login).toString('base64')}`
  } catch {
    // A percent sign that escapes nothing stands for itself.
    return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
  }
}

export interface ProxyVariable {
  readonly name: string
  readonly value: string
}

/** Finds the variable that names a proxy for a URL, lower case first; null: none, or `NO_PROXY`. */
export function proxyVariable(
  url: URL,
  env: Readonly<Record<string, string | undefined>>,
): ProxyVariable | null {
  const scheme = url.protocol.slice(0, -1)
  const names = [`${scheme}_proxy`, `${scheme.toUpperCase()}_PROXY`, 'all_proxy', 'ALL_PROXY']
  const name = names.find((one) => (env[one] ?? '') !== '')
  if (name === undefined || isExempt(url, `${env.no_proxy ?? ''},${env.NO_PROXY ?? ''}`)) return null
  const value = env[name] ?? ''
  return { name, value: value.includes('://') ? value : `http://${value}` }
}

/** Tells whether a list exempts a host: `*`, a name and those below it, an address, a range. */
function isExempt({ hostname, port, protocol }: URL, list: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  const taken = port === '' ? (protocol === 'https:' ? '443' : '80') : port
  if (host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))) return true
  return list
    .split(/[,\s]+/)
    .filter((entry) => entry !== '')
    .some((entry) => {
      if (entry === '*') return true
      const [, plain = entry, only = taken] = /^(\[.*\]|[^:]*):(\d+)$/.exec(entry) ?? []
      return only === taken && isHostOf(host, plain.replace(/^\[|\]$/g, '').toLowerCase())
    })
}

function isHostOf(host: string, entry: string): boolean {
  if (isIP(host) !== 0) return host === entry || isInRange(host, entry)
  const name = entry.replace(/^\*?\./, '').replace(/\.$/, '')
  return host === name || host.endsWith(`.${name}`)
}

function isInRange(address: string, entry: string): boolean {
  const [network = '', bits = ''] = entry.split('/')
  if (isIP(network) === 0 || isIPv6(network) !== isIPv6(address) || !/^\d{1,3}$/.test(bits)) return false
  const family = isIPv6(network) ? 'ipv6' : 'ipv4'
  if (Number(bits) > (family === 'ipv6' ? 128 : 32)) return false
  const range = new BlockList()
  range.addSubnet(network, Number(bits), family)
  return range.check(address, family)
}

const MAX_HEAD = 16_384
const END_OF_HEAD = '\r\n\r\n'

/** Asks a proxy for a tunnel to `target`, and calls back once: null, or the failure. Sets no time limit. */
export function requestTunnel(
  connection: Duplex,
  proxy: EgressProxy,
  target: string,
  done: (failure: ProxyTunnelError | null) => void,
): void {
  let head: Buffer = Buffer.alloc(0)
  const end = (failure: ProxyTunnelError | null): void => {
    connection.off('data', read).off('error', failed).off('close', closed)
    connection.pause()
    done(failure)
  }
  const failed = (error: Error): void => end(new ProxyTunnelError(proxy, 'broke off', null, error))
  const closed = (): void => end(new ProxyTunnelError(proxy, 'closed the connection'))
  const read = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk])
    const at = head.indexOf(END_OF_HEAD)
    if (at < 0) {
      if (head.length > MAX_HEAD) end(new ProxyTunnelError(proxy, 'answered with no HTTP'))
      return
    }
    const [, text] = /^HTTP\/1\.[01] (\d{3})[ \r]/.exec(head.toString('latin1', 0, at + 2)) ?? []
    const rest = head.subarray(at + END_OF_HEAD.length)
    const status = Number(text)
    if (text === undefined) end(new ProxyTunnelError(proxy, 'answered with no HTTP'))
    else if (status < 200 || status > 299) {
      end(new ProxyTunnelError(proxy, `answered the request for a tunnel with ${status}`, status))
    } else {
      end(null)
      if (rest.length > 0) connection.unshift(rest)
    }
  }
  connection.on('data', read).on('error', failed).on('close', closed)
  const credentials = proxy.authorization === null ? '' : `proxy-authorization: ${proxy.authorization}\r\n`
  connection.write(`CONNECT ${target} HTTP/1.1\r\nhost: ${target}\r\n${credentials}\r\n`)
}
