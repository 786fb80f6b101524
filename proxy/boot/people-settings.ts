import { resolve } from 'node:path'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'

export const PEOPLE_VARIABLES: readonly string[] = [
  'MCP_PROXY_PEOPLE_LISTEN',
  'MCP_PROXY_PEOPLE_URL',
  'MCP_PROXY_PEOPLE_TLS_CERT',
  'MCP_PROXY_PEOPLE_TLS_KEY',
]

/** The listener for people without a certificate (docs/people.md). `Address`: as settings read one. */
export interface PeopleDoor<Address> {
  readonly listen: Address
  /** The one URL of it, without a trailing slash: issuer, resource, cookies and links. */
  readonly url: string
  /** PEM files, by absolute path. Null: it shows the gateway's own certificate. */
  readonly tls: { readonly cert: string; readonly key: string } | null
}

interface PeopleReading<Address> {
  readonly address: (name: string, text: string) => Address
  /** Makes the error of a sentence. */
  readonly fault: (message: string) => Error
  readonly cwd: string
}

/**
 * Reads the listener for people; null if it is closed. Throws if a setting of it cannot be obeyed, or stands
 * alone. Does NOT read the files.
 */
export function peopleDoor<Address>(
  env: EnvironmentVariables,
  { address, fault, cwd }: PeopleReading<Address>,
): PeopleDoor<Address> | null {
  const [listen, url, cert, key] = PEOPLE_VARIABLES.map((name) => env[name] || null)
  if (!listen) {
    const alone = PEOPLE_VARIABLES.find((name) => env[name])
    if (alone) throw fault(`${alone} says nothing without MCP_PROXY_PEOPLE_LISTEN: set both or neither`)
    return null
  }
  if (!url) throw fault('MCP_PROXY_PEOPLE_URL is required with MCP_PROXY_PEOPLE_LISTEN')
  const origin = URL.parse(url)?.origin
  if (!origin?.startsWith('https://') || url.replace(/\/$/, '') !== origin)
    throw fault('MCP_PROXY_PEOPLE_URL must be an https origin, such as https://people.example.com')
  if (!cert !== !key)
    throw fault('MCP_PROXY_PEOPLE_TLS_CERT and MCP_PROXY_PEOPLE_TLS_KEY belong together: set both or neither')
  const tls = cert && key ? { cert: resolve(cwd, cert), key: resolve(cwd, key) } : null
  return { listen: address('MCP_PROXY_PEOPLE_LISTEN', listen), url: origin, tls }
}
