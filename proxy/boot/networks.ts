import { BlockList, isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * Reads an IP address or a network in CIDR form, such as `10.1.0.0/16`, and returns it as a network. Null for
 * anything else: zones, other spellings of numbers, and IPv4 addresses written as IPv6.
 */
export function parseNetwork(text: string): string | null {
  const [address = '', bits, ...rest] = text.split('/')
  const family = isIP(address)
  if (family === 0 || address.includes('%') || rest.length > 0) return null
  const parsed = ipaddr.parse(address)
  if (parsed instanceof ipaddr.IPv6 && parsed.isIPv4MappedAddress()) return null
  const most = family === 4 ? 32 : 128
  if (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= most)) return null
  return `${parsed.toString()}/${bits ?? most}`
}

/** Tells whether a host is this machine. `host` as URL prints it: an IPv4 address in its four decimals. */
const isOwnHost = (host: string): boolean =>
  host === 'localhost' || host === '[::1]' || (isIP(host) === 4 && host.startsWith('127.'))

/** Tells whether nobody on the way reads or writes: TLS, or this machine. */
export const isGuardedUrl = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || (protocol === 'http:' && isOwnHost(hostname))

/**
 * Makes the question whether an address, as a socket has it, lies in one of the networks. An IPv4 address
 * that comes as IPv6 is one of IPv4.
 */
export function networkMatcher(networks: readonly string[]): (address: string) => boolean {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', bits] = network.split('/')
    list.addSubnet(address, Number(bits), isIP(address) === 4 ? 'ipv4' : 'ipv6')
  }
  return (address) => list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
}
