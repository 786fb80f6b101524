import type { IncomingHttpHeaders } from 'node:http'
import type { Members } from '../../../db/json.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { decodeHeaderValue } from './header-values.ts'
import { NAMED } from './methods.ts'
import { type Era, LEGACY, META, MODERN, SUPPORTED, UNSTATED } from './versions.ts'

interface Protocol {
  readonly era: Era
  readonly version: string
}

/**
 * Reads the protocol version and era of a caller's message: header and `_meta` must say the same (MCP
 * 2026-07-28, protocol version header). Without either it is of the legacy era: a client need not initialize
 * to be served (WIRE.md §7).
 * `lone`: a notification or response, which carries no `_meta`.
 */
export function callerEra(headers: IncomingHttpHeaders, meta: Members, lone: boolean): Protocol {
  const header = headers['mcp-protocol-version']
  const declared = meta[META.version]
  if (declared === undefined) return undeclared(header, lone)
  if (typeof declared !== 'string') throw metaInvalid(`${META.version} must be a string.`)
  if (header !== declared) throw mismatch(`MCP-Protocol-Version is not the ${META.version} of the body.`)
  // As server/discover says: a client in this form has no use for a version without it.
  if (declared !== MODERN) throw unsupported(declared, [MODERN])
  const capabilities = meta[META.capabilities]
  if (typeof capabilities !== 'object' || capabilities === null || Array.isArray(capabilities)) {
    throw metaInvalid(`${META.capabilities} must be an object.`)
  }
  return { era: 'modern', version: MODERN }
}

function undeclared(header: string | string[] | undefined, lone: boolean): Protocol {
  if (header === undefined) return { era: 'legacy', version: UNSTATED }
  if (typeof header === 'string' && LEGACY.includes(header)) return { era: 'legacy', version: header }
  if (header !== MODERN) throw unsupported(String(header), SUPPORTED)
  if (lone) return { era: 'modern', version: MODERN }
  throw metaInvalid(`${META.version} is missing in params._meta.`)
}

interface Named {
  readonly era: Era
  readonly kind: string
  readonly method: string
  readonly params: Members
}

/**
 * Checks that `Mcp-Method` and `Mcp-Name` repeat the body (MCP 2026-07-28, standard request headers):
 * somebody in front of us may have judged by them. A modern request must carry them; an older one need not,
 * but may not contradict itself either.
 */
export function standardHeaders({ era, kind, method, params }: Named, headers: IncomingHttpHeaders): void {
  const required = era === 'modern' && kind === 'request'
  compare('Mcp-Method', headers['mcp-method'], method, required)
  const member = NAMED.get(method)
  const name = member === undefined ? undefined : params[member]
  const header = headers['mcp-name']
  // A name that is no string is refused where the parameters are read.
  if (member === undefined || typeof name !== 'string') return
  const decoded = typeof header === 'string' ? decodeHeaderValue(header) : undefined
  compare('Mcp-Name', decoded, name, required)
}

function compare(
  name: string,
  header: string | string[] | null | undefined,
  value: string,
  required: boolean,
): void {
  if (header === undefined && !required) return
  if (header !== value) throw mismatch(`${name} is not what the body says.`)
}

const mismatch = (message: string): Refusal => new Refusal('mcp_header_mismatch', { message })
const metaInvalid = (message: string): Refusal => new Refusal('mcp_meta_invalid', { message })

const unsupported = (requested: string, supported: readonly string[]): Refusal =>
  new Refusal('mcp_version_unsupported', { detail: { supported, requested: requested.slice(0, 64) } })
