import type { IncomingMessage } from 'node:http'
import { Refusal } from '../../plugins/refusal.ts'

// Of each of these a second one is an attack: Node keeps the first, joins them, or differs from the next hop (SECURITY T8).
const SINGLE = new Set([
  'authorization',
  'content-length',
  'content-type',
  'dpop',
  'expect',
  'host',
  'transfer-encoding',
  'x-admin-secret',
  'x-api-key',
  'if-match',
  'mcp-session-id',
  'mcp-protocol-version',
  'mcp-method',
  'mcp-name',
  'origin',
]) // prettier-ignore

// host, optional port; no userinfo, path or blank (RFC 9110 §7.2).
const HOST = /^(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/
// origin-form only (RFC 9112 §3.2.1): printable ASCII; never `//host`, never a fragment or a backslash.
const TARGET = /^\/(?!\/)[\x21\x22\x24-\x5b\x5d-\x7e]*$/

/**
 * What Node's parser lets through and this service does not (SECURITY T7, T8, threat 10): the refusal that says so, or
 * null. It closes the connection, and comes before any route is looked for.
 * Does NOT keep what was pipelined behind such a request from being looked at: `proxy/http/serve.ts` does.
 */
export function framingFault(request: Head): Refusal | null {
  const message = lineFault(request) ?? headerFault(request.rawHeaders)
  if (message !== null) return new Refusal('bad_request', { message, ...CLOSE })
  const expected = request.headers.expect ?? '100-continue'
  return expected.toLowerCase() === '100-continue' ? null : new Refusal('expectation_failed', CLOSE)
}

type Line = Pick<IncomingMessage, 'httpVersion' | 'method' | 'url'>
type Head = Line & Pick<IncomingMessage, 'headers' | 'rawHeaders'>

const CLOSE = { headers: { connection: 'close' } } as const

function lineFault({ httpVersion, method, url }: Line): string | null {
  if (httpVersion !== '1.1') return 'Only HTTP/1.1 is spoken here.'
  if (method === 'TRACE' || method === 'CONNECT') return 'This method is not spoken here.'
  return url && TARGET.test(url) ? null : 'The request target must be an absolute path.'
}

function headerFault(rawHeaders: readonly string[]): string | null {
  const seen = new Set<string>()
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] ?? '').toLowerCase()
    const value = rawHeaders[i + 1] ?? ''
    // `Transfer_Encoding` is another header to us and the same one to some servers behind us.
    if (name.includes('_')) return 'Header names with an underscore are not accepted.'
    if (!SINGLE.has(name)) continue
    if (seen.has(name)) return `The header ${name} was sent twice.`
    seen.add(name)
    if (name === 'host' && !HOST.test(value)) return 'The Host header is not a host.'
    if (name === 'transfer-encoding' && value.toLowerCase() !== 'chunked')
      return 'Only chunked transfer coding is accepted.'
  }
  return seen.has('host') ? null : 'The Host header is missing.'
}
