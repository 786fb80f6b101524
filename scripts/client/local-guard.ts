import type { IncomingMessage } from 'node:http'
import type { LocalError } from './envelope.ts'

/** The names by which a program on this machine may call the sidecar. */
const NAMES = ['127.0.0.1', 'localhost', '[::1]']

/**
 * Returns the error that a request to the sidecar is refused with, or null. A party that can make this
 * machine's browser call a loopback port would speak as the agent: a page of another site (its `Origin` or
 * `Sec-Fetch-Site` says so), or a name that was pointed here (DNS rebinding: its `Host` says so, and it has
 * one). `port`: the sidecar's own. Does NOT keep out other users of this machine: a loopback port has no owner.
 */
export function localFault(
  { headers, rawHeaders, url = '' }: Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'url'>,
  port: number,
): LocalError | null {
  // Node keeps the first of two.
  if (rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === 'host').length > 1) {
    return malformed('The header host was sent twice.')
  }
  const hosts = NAMES.map((name) => `${name}:${port}`)
  const { host = '', origin, 'sec-fetch-site': site } = headers
  if (!hosts.includes(host.toLowerCase())) {
    return forbidden('host_not_local', `The Host header must be one of ${hosts.join(', ')}.`)
  }
  if (origin !== undefined && !hosts.some((local) => origin === `http://${local}`)) {
    return forbidden('origin_not_local', 'Pages of other origins may not call this agent.')
  }
  if (site !== undefined && site !== 'same-origin' && site !== 'none') {
    return forbidden('origin_not_local', 'Pages of other sites may not call this agent.')
  }
  if (url.startsWith('/') && !url.startsWith('//')) return null
  return malformed('The target must be an absolute path.')
}

const malformed = (message: string): LocalError => ({
  status: 400,
  reason: 'bad_request',
  message,
  final: true,
})

const forbidden = (reason: string, message: string): LocalError => ({
  status: 403,
  reason,
  message,
  final: true,
})
