import { BlockList, isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

type ParsedAddress = ipaddr.IPv4 | ipaddr.IPv6

/**
 * The ranges that are never the public internet, by the word for logs and audit rows. The first match counts.
 */
const FORBIDDEN: readonly (readonly [reason: string, ...ranges: readonly string[]])[] = [
  // Clouds hand out credentials there. Refused even if private addresses are allowed, so they stand first.
  ['metadata', '169.254.169.254/32', '100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32'],
  ['metadata', 'fd00:ec2::/32', 'fd20:ce::254/128', 'fd00:c1::a9fe:a9fe/128', 'fd00:42::42/128'],
  ['metadata', 'fd00:a9fe:a9fe::1/128'],
  ['loopback', '127.0.0.0/8', '::1/128'],
  ['private', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
  ['unspecified', '0.0.0.0/8', '::/128'],
  ['shared', '100.64.0.0/10'],
  ['link_local', '169.254.0.0/16', 'fe80::/10', 'fec0::/10'],
  ['broadcast', '255.255.255.255/32'],
  ['multicast', '224.0.0.0/4', 'ff00::/8'],
  ['reserved', '192.0.0.0/24', '192.0.2.0/24', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24'],
  ['reserved', '192.31.196.0/24', '192.52.193.0/24', '192.175.48.0/24', '240.0.0.0/4'],
  ['reserved', '100::/64', '2001::/23', '2001:db8::/32', '2620:4f:8000::/48', '3ffe::/16', '3fff::/20'],
  // Another address lies inside, and a hop may unpack it: mapped, compatible, translated, NAT64, 6to4.
  ['embedded', '::ffff:0:0/96', '::/96', '::ffff:0:0:0/96', '64:ff9b::/96', '64:ff9b:1::/48', '2002::/16'],
  ['embedded', '192.88.99.0/24'],
]

const RANGES = FORBIDDEN.flatMap(([reason, ...ranges]) =>
  ranges.map((text) => ({ reason, text, range: ipaddr.parseCIDR(text) })),
)

/** All that IANA has given out for global unicast (RFC 4291 §2.4). */
const GLOBAL_IPV6 = ipaddr.parseCIDR('2000::/3')

/** The reasons that `allowPrivate` lets through; no other. */
const PRIVATE: ReadonlySet<string> = new Set(['loopback', 'private'])

/**
 * Judges an IP address that is to be connected to (docs/threats.md#threat-19). Returns the reason of its
 * refusal as one word for the log, or null if it is plainly global unicast. `allowPrivate`: loopback, RFC
 * 1918 and unique local addresses are allowed too. Refuses text that is no IP address in its usual spelling,
 * or carries a zone.
 */
export function addressRefusal(address: string, allowPrivate: boolean): string | null {
  // Node judges the spelling first: ipaddr.js would also read octal, hexadecimal and short forms.
  if (isIP(address) === 0) return 'malformed'
  if (address.includes('%')) return 'zone'
  const parsed = ipaddr.parse(address)
  const reason = reasonOf(parsed)
  return allowPrivate && reason !== null && PRIVATE.has(reason) ? null : reason
}

function reasonOf(address: ParsedAddress): string | null {
  const forbidden = RANGES.find(({ range: [network, bits] }) => isInNetwork(address, network, bits))
  if (forbidden) return forbidden.reason
  if (address instanceof ipaddr.IPv6 && (!address.match(GLOBAL_IPV6) || isIsatap(address))) return 'reserved'
  // The library's own table, kept by others than ours: a second opinion.
  return address.range() === 'unicast' ? null : 'reserved'
}

function isInNetwork(address: ParsedAddress, network: ParsedAddress, bits: number): boolean {
  return address.kind() === network.kind() && address.match(network, bits)
}

/** Tells whether the interface identifier carries an IPv4 address (RFC 5214 §6.1). */
function isIsatap({ parts }: ipaddr.IPv6): boolean {
  return ((parts[4] ?? 0) & 0xfdff) === 0 && parts[5] === 0x5efe
}

/** Makes the list by which `net.connect` judges its address. Blocks less than {@link addressRefusal}. */
export function blockedAddresses(allowPrivate: boolean): BlockList {
  const blocked = new BlockList()
  for (const { reason, text, range } of RANGES) {
    const [network, bits] = range
    if (allowPrivate && PRIVATE.has(reason)) continue
    if (!UNBLOCKABLE.has(text)) blocked.addSubnet(network.toString(), bits, network.kind())
  }
  return blocked
}

// A list has no first match, so ::/96 would block ::1 for good; and Node reads every IPv4 address as a mapped
// one too.
const UNBLOCKABLE: ReadonlySet<string> = new Set(['::/96', '::ffff:0:0/96'])

/** Names under which clouds serve credentials. Refused even if private addresses are allowed. */
const METADATA_NAMES = [
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'metadata.azure.internal',
  'metadata.azure.com',
  'metadata.packet.net',
  'metadata.platformequinix.com',
  'metadata.tencentyun.com',
  'instance-data',
  'instance-data.ec2.internal',
]

/** Names that a resolver answers with the machine itself (RFC 6761 §6.3, and /etc/hosts). */
const LOOPBACK_NAMES = [
  'localhost',
  'localdomain',
  'localhost6',
  'localdomain6',
  'ip6-localhost',
  'ip6-loopback',
]

/** Names that never are on the public internet (RFC 6762, RFC 8375, and ICANN's `internal`). */
const PRIVATE_NAMES = ['local', 'internal', 'home.arpa']

const DNS_NAME = /^(?=.{1,253}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/

/**
 * Judges a URL's host without asking DNS. Returns the reason of its refusal as one word for the log, or null,
 * which says nothing about the addresses behind a name. Refuses other schemes than http and https.
 */
export function hostRefusal(url: URL, allowPrivate: boolean): string | null {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'scheme'
  return hostnameRefusal(url.hostname, allowPrivate)
}

/** Judges a host alone as {@link hostRefusal} does; an IPv6 address with or without its brackets. */
export function hostnameRefusal(hostname: string, allowPrivate: boolean): string | null {
  const bare = /^\[(.*)\]$/.exec(hostname)?.[1] ?? hostname
  if (isIP(bare) !== 0) return addressRefusal(bare, allowPrivate)
  // No trailing dot either: the root's dot makes a second spelling of every name, and none of the lists below
  // has it.
  if (!DNS_NAME.test(bare)) return 'malformed'
  if (isUnder(bare, METADATA_NAMES)) return 'metadata'
  if (allowPrivate) return null
  if (isUnder(bare, LOOPBACK_NAMES)) return 'loopback'
  // A name without a dot is completed by the resolver's search list, so it is one of this network's own.
  return isUnder(bare, PRIVATE_NAMES) || !bare.includes('.') ? 'private' : null
}

function isUnder(name: string, parents: readonly string[]): boolean {
  return parents.some((parent) => name === parent || name.endsWith(`.${parent}`))
}
