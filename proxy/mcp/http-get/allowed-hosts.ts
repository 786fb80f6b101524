import { FetchFailure } from './failure.ts'

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
export function checkAllowedHost(url: URL, allowed: AllowedHosts): void {
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
