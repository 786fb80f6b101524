import { isIPv4, isIPv6 } from 'node:net'
import { OctetString } from 'asn1js'
import { GeneralName } from 'pkijs'
import { subjectAltNamesOf } from '../enrollment/spiffe-id.ts'

/** A name under which this service is reached, as the subjectAltName holds it (RFC 5280 §4.2.1.6). */
export interface ServerName {
  /** Lower-case; an address in its shortest form. */
  readonly text: string
  readonly name: GeneralName
}

const DNS_NAME = 2
const IP_ADDRESS = 7
// Underscores are no DNS host names, yet container networks are full of them.
const HOST = /^(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$/

/**
 * Returns each name once, in order. Throws an Error that names the first one no certificate can carry, or if
 * none is left.
 */
export function serverNames(hostnames: readonly string[]): readonly ServerName[] {
  const names = new Map(hostnames.map(serverName).map((name) => [name.text, name]))
  if (names.size === 0) throw new Error('a server certificate needs at least one host name')
  return [...names.values()]
}

/**
 * Tells whether the certificate's SAN holds exactly these names, in any order. Throws if `serverNames` does.
 */
export function isForNames(certificateDer: Uint8Array, hostnames: readonly string[]): boolean {
  const held = subjectAltNamesOf(certificateDer).map(keyOf)
  const wanted = serverNames(hostnames).map(({ name }) => keyOf(name))
  return held.toSorted().join() === wanted.toSorted().join()
}

// Hex keeps one name from posing as two by a separator inside it.
function keyOf({ type, value }: GeneralName): string {
  const bytes = value instanceof OctetString ? value.valueBlock.valueHexView : Buffer.from(String(value))
  return `${type}:${Buffer.from(bytes).toString('hex')}`
}

function serverName(hostname: string): ServerName {
  const text = hostname.toLowerCase()
  if (isIPv4(text)) return address(text, Uint8Array.from(text.split('.'), Number))
  if (isIPv6(text) && !text.includes('%')) return addressV6(text)
  if (text.length > 253 || !HOST.test(text)) {
    throw new Error(`${JSON.stringify(hostname)} is neither a host name nor an IP address`)
  }
  return { text, name: new GeneralName({ type: DNS_NAME, value: text }) }
}

function addressV6(text: string): ServerName {
  // URL writes every form (`::ffff:1.2.3.4`, leading zeros) as hexadecimal groups with at most one `::`.
  const shortest = new URL(`http://[${text}]`).hostname.slice(1, -1)
  const [before = '', after] = shortest.split('::')
  const head = groups(before)
  const tail = groups(after ?? '')
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => 0)
  const octets = [...head, ...zeros, ...tail].flatMap((group) => [group >> 8, group & 0xff])
  return address(shortest, Uint8Array.from(octets))
}

function groups(text: string): readonly number[] {
  return text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16))
}

function address(text: string, octets: Uint8Array<ArrayBuffer>): ServerName {
  return { text, name: new GeneralName({ type: IP_ADDRESS, value: new OctetString({ valueHex: octets }) }) }
}
