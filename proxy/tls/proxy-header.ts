import { isIPv4, isIPv6 } from 'node:net'
import ipaddr from 'ipaddr.js'

/** Castagnoli's polynomial, its bits in reverse (RFC 9260, appendix A). */
const POLYNOMIAL = 0x82f63b78

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ POLYNOMIAL : rest >>> 1
  return rest
})

/** The CRC32C of bytes. `node:zlib` has the other polynomial only. */
export function crc32c(bytes: Uint8Array): number {
  let rest = 0xffffffff
  for (const byte of bytes) rest = (rest >>> 8) ^ (TABLE[(rest ^ byte) & 255] ?? 0)
  return (rest ^ 0xffffffff) >>> 0
}

/** The far end of a connection, under the names that a socket has for it. */
export interface ProxiedClient {
  /** IPv4 in decimals, or IPv6 as RFC 5952 writes it. */
  readonly remoteAddress: string
  readonly remotePort: number
  readonly remoteFamily: 'IPv4' | 'IPv6'
}

export interface ParsedProxyHeader {
  /** Null: the connection itself counts, as for a balancer's own look at our health. */
  readonly caller: ProxiedClient | null
  readonly rest: Buffer
}

/** Bytes of a line of version 1, with its end (§2.1). */
const MAX_LINE = 107
/** Bytes of a header of version 2. The longest address takes 232; balancers' additions a few hundred. */
const MAX_HEADER = 4_096
/** Bytes before the addresses in version 2. */
const FIXED = 16

const LINE = Buffer.from('PROXY ')
const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n')
const NOTHING = Buffer.alloc(0)

/** A connection that should begin with a header, and does not. */
export class ProxyHeaderError extends Error {
  override readonly name = 'ProxyHeaderError'
}

/** Tells the beginning of a header of either version: neither TLS nor HTTP begins so. */
export const beginsProxyHeader = (bytes: Buffer): boolean =>
  [SIGNATURE, LINE].some((begin) => bytes.length >= begin.length && startsAlike(bytes, begin))

/** Compares as much as there is of both. */
const startsAlike = (bytes: Buffer, expected: Buffer): boolean => {
  const length = Math.min(bytes.length, expected.length)
  return bytes.compare(expected, 0, length, 0, length) === 0
}

/** Reads the header of HAProxy's PROXY protocol, versions 1 and 2. Does NOT ask who sent it. */
export class ProxyHeader {
  #held: Buffer = NOTHING

  /** True if anything has come. */
  get begun(): boolean {
    return this.#held.length > 0
  }

  /** Takes bytes; null: not whole. Throws {@link ProxyHeaderError} at the first wrong byte. */
  add(piece: Buffer): ParsedProxyHeader | null {
    const bytes = this.#held.length === 0 ? piece : Buffer.concat([this.#held, piece])
    const version = startsAlike(bytes, SIGNATURE) ? BINARY : TEXT
    const length = version.length(bytes)
    if (length === null || bytes.length < length) {
      this.#held = bytes
      return null
    }
    this.#held = NOTHING
    return { caller: version.read(bytes.subarray(0, length)), rest: bytes.subarray(length) }
  }
}

interface ProxyHeaderVersion {
  /** The length of the whole header; null while that is not known. */
  readonly length: (bytes: Buffer) => number | null
  readonly read: (header: Buffer) => ProxiedClient | null
}

const TEXT: ProxyHeaderVersion = {
  length: (bytes) => {
    if (!startsAlike(bytes, LINE)) throw new ProxyHeaderError('no header of the PROXY protocol')
    const line = bytes.subarray(0, MAX_LINE)
    const end = line.indexOf('\n')
    if (end < 0 && line.length === MAX_LINE) throw new ProxyHeaderError('a line without an end')
    return end < 0 ? null : end + 1
  },
  read: (header) => {
    const line = header.toString('latin1')
    // The rest of the line does not matter (§2.1).
    if (/^PROXY UNKNOWN(?: [^\r\n]*)?\r\n$/.test(line)) return null
    const [, family, source = '', destination = '', port = '', otherPort = ''] = FIELDS.exec(line) ?? []
    const isAddress = family === '4' ? isIPv4 : isIPv6
    const sound = isAddress(source) && isAddress(destination) && isPort(port) && isPort(otherPort)
    if (!sound || OUT_OF_USE.test(source))
      throw new ProxyHeaderError('a line that is not formed as it should be')
    return proxiedClient(ipaddr.parse(source), Number(port))
  },
}

// Without a zone: that means something on the balancer's machine only.
const FIELDS = /^PROXY TCP([46]) ([\d.:a-fA-F]+) ([\d.:a-fA-F]+) (\d{1,5}) (\d{1,5})\r\n$/

// IPv4-compatible (RFC 4291 §2.5.5.1). ipaddr.js takes it for a mapped one, which is another address.
const OUT_OF_USE = /^::\d+\./

/** No leading zeros (§2.1). */
const isPort = (text: string): boolean => String(Number(text)) === text && Number(text) <= 65_535

const LOCAL = 0x20
const PROXY = 0x21
const TCP4 = 0x11
const TCP6 = 0x21
/** Bytes of the addresses of the families: unspecified, IPv4, IPv6, Unix. */
const ADDRESSES = [0, 12, 36, 216]
/** Transports: unspecified, stream, datagram. */
const TRANSPORTS = 3

const BINARY: ProxyHeaderVersion = {
  length: (bytes) => {
    const [version = LOCAL] = bytes.subarray(SIGNATURE.length)
    if (version !== LOCAL && version !== PROXY) throw new ProxyHeaderError('another version, or no command')
    if (bytes.length < FIXED) return null
    const length = FIXED + bytes.readUInt16BE(FIXED - 2)
    if (length > MAX_HEADER) throw new ProxyHeaderError('a header that is too long')
    return length
  },
  read: (header) => {
    // Nothing in it counts then, its family and its checksum included (§2.2).
    if (header[SIGNATURE.length] === LOCAL) return null
    const kind = header[SIGNATURE.length + 1] ?? 0
    const addresses = ADDRESSES[kind >> 4]
    if (addresses === undefined || (kind & 15) >= TRANSPORTS)
      throw new ProxyHeaderError('a family or a transport that there is not')
    // An unspecified address has no known end.
    if (addresses === 0 || (kind & 15) === 0) return null
    if (header.length < FIXED + addresses) throw new ProxyHeaderError('shorter than its addresses')
    checkVectors(header, FIXED + addresses)
    if (kind === TCP4) return proxiedClient(addressIn(header, 4), header.readUInt16BE(FIXED + 8))
    if (kind === TCP6) return proxiedClient(addressIn(header, 16), header.readUInt16BE(FIXED + 32))
    // A datagram, or a socket in the balancer's own file system.
    return null
  },
}

const addressIn = (header: Buffer, length: number): ipaddr.IPv4 | ipaddr.IPv6 =>
  ipaddr.fromByteArray([...header.subarray(FIXED, FIXED + length)])

const CRC32C = 0x03
/** Type and length before a value. Bytes. */
const VECTOR = 3

/** Checks that the vectors after the addresses fill the header, and the checksum if there is one (§2.2.3). */
function checkVectors(header: Buffer, from: number): void {
  let at = from
  while (at < header.length) {
    const value = at + VECTOR
    const end = value > header.length ? value : value + header.readUInt16BE(at + 1)
    if (end > header.length) throw new ProxyHeaderError('a vector that is longer than the header')
    if (header[at] === CRC32C) {
      if (end - value !== 4 || header.readUInt32BE(value) !== checksum(header, value))
        throw new ProxyHeaderError('a checksum that is not right')
    }
    at = end
  }
}

function checksum(header: Buffer, at: number): number {
  const zeroed = Buffer.from(header)
  zeroed.fill(0, at, at + 4)
  return crc32c(zeroed)
}

/** An IPv4 address in IPv6 is one of IPv4: all that come so would else count as one sender. */
function proxiedClient(address: ipaddr.IPv4 | ipaddr.IPv6, port: number): ProxiedClient {
  const plain =
    address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() ? address.toIPv4Address() : address
  const remoteFamily = plain instanceof ipaddr.IPv4 ? 'IPv4' : 'IPv6'
  return { remoteAddress: plain.toString(), remotePort: port, remoteFamily }
}
