import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'

export interface HostAddress {
  readonly address: string
  readonly family: 4 | 6
}

const HOSTS_FILE = '/etc/hosts'
const RESOLVER_FILE = '/etc/resolv.conf'

/** Reads a file of the machine. One that cannot be read says nothing, as for the system's own look-up. */
const textOf = (file: string): Promise<string> => readFile(file, 'utf8').catch(() => '')

const LOOPBACK: readonly HostAddress[] = [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
]

/**
 * The addresses of the machine's hosts file, and loopback for `localhost` and names below it (RFC 6761 §6.3).
 */
export async function machineAddresses(host: string): Promise<readonly HostAddress[]> {
  const name = normalizeHost(host)
  const found = addressesIn(await textOf(HOSTS_FILE), name)
  return found.length === 0 && /(?:^|\.)localhost$/.test(name) ? LOOPBACK : found
}

export function addressesIn(text: string, name: string): readonly HostAddress[] {
  // A file of a hundred thousand lines, none of which is asked for, is not taken apart.
  if (!text.toLowerCase().includes(name)) return []
  return text.split('\n').flatMap((line) => {
    const [address = '', ...names] = (line.split('#')[0] ?? '').trim().toLowerCase().split(/\s+/)
    const family = isIP(address)
    return names.includes(name) && (family === 4 || family === 6) ? [{ address, family }] : []
  })
}

/** The full names that a name may stand for, in the order asked (resolv.conf(5)). */
export const searchedHostNames = async (host: string): Promise<readonly string[]> =>
  expandSearchList(host, await textOf(RESOLVER_FILE))

const MAX_SEARCHED = 16

/** Full names by the search list of a resolv.conf. One that ends with a dot stands for itself. */
export function expandSearchList(host: string, text: string): readonly string[] {
  if (host.endsWith('.')) return [normalizeHost(host)]
  const lines = text.split('\n').map((line) => line.trim().split(/\s+/))
  // The last one counts.
  const [, ...domains] = lines.findLast(([word]) => word === 'search' || word === 'domain') ?? []
  const options = lines.filter(([word]) => word === 'options').flat()
  const ndots = options.findLast((option) => /^ndots:\d+$/.test(option)) ?? 'ndots:1'
  const below = domains.slice(0, MAX_SEARCHED).map((domain) => `${host}.${normalizeHost(domain)}`)
  const isFull = host.split('.').length - 1 >= Number(ndots.slice('ndots:'.length))
  return isFull ? [host, ...below] : [...below, host]
}

const normalizeHost = (host: string): string => host.toLowerCase().replace(/\.$/, '')

/** Sorts IPv6 first if an interface has a global IPv6 address, else IPv4 (RFC 6724 §5). */
export function reachableFirst(addresses: readonly HostAddress[]): readonly HostAddress[] {
  const own = Object.values(networkInterfaces()).flat()
  const first = own.some((one) => one?.family === 'IPv6' && !one.internal && one.scopeid === 0) ? 6 : 4
  return addresses.toSorted((a, b) => Number(b.family === first) - Number(a.family === first))
}
