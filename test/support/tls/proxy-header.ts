import { BlockList } from 'node:net'
import ipaddr from 'ipaddr.js'

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')

/** `PROXY` over IPv4 or IPv6. Each can be a lie. */
export interface Wanted {
  readonly source?: string
  readonly destination?: string
  readonly sourcePort?: number
  /** Version and command. Default: 2, PROXY. */
  readonly command?: number
  /** Family and transport. Default: TCP over the family of the source. */
  readonly kind?: number
  /** Type-length-value vectors as they are. */
  readonly vectors?: Buffer
  /** What stands behind the fixed part, in place of addresses and vectors. */
  readonly block?: Buffer
  /** The length that is claimed. Default: the real one. */
  readonly length?: number
}

/** A header of version 2, written by this file alone from the specification. */
export function header2(wanted: Wanted = {}): Buffer {
  const { source = '192.0.2.7', destination = '198.51.100.1', sourcePort = 50_007, command = 0x21 } = wanted
  const from = ipaddr.parse(source)
  const ports = Buffer.alloc(4)
  ports.writeUInt16BE(sourcePort, 0)
  ports.writeUInt16BE(9443, 2)
  const to = ipaddr.parse(from.kind() === 'ipv6' ? '2001:db8::1' : destination)
  const addresses = Buffer.concat([Buffer.from(from.toByteArray()), Buffer.from(to.toByteArray()), ports])
  const block = wanted.block ?? Buffer.concat([addresses, wanted.vectors ?? Buffer.alloc(0)])
  const fixed = Buffer.from([command, wanted.kind ?? (from.kind() === 'ipv6' ? 0x21 : 0x11), 0, 0])
  fixed.writeUInt16BE(wanted.length ?? block.length, 2)
  return Buffer.concat([SIGNATURE, fixed, block])
}

/** A type-length-value vector. */
export function vector(type: number, value: Buffer | string, length = Buffer.byteLength(value)): Buffer {
  const head = Buffer.from([type, 0, 0])
  head.writeUInt16BE(length, 1)
  return Buffer.concat([head, Buffer.from(value)])
}

/** The same header with a checksum behind everything else; `wrong` turns one of its bits. */
export function withChecksum(wanted: Wanted, wrong = false): Buffer {
  const vectors = Buffer.concat([wanted.vectors ?? Buffer.alloc(0), vector(3, Buffer.alloc(4))])
  const header = header2({ ...wanted, vectors })
  header.writeUInt32BE((bitwise(header) ^ (wrong ? 1 : 0)) >>> 0, header.length - 4)
  return header
}

/** CRC32C by its definition, bit by bit: no table that could be wrong in the same way. */
function bitwise(bytes: Buffer): number {
  let rest = 0xffffffff
  for (const byte of bytes)
    for (let bit = 0; bit < 8; bit += 1) {
      const carry = (rest ^ (byte >> bit)) & 1
      rest = (rest >>> 1) ^ (carry ? 0x82f63b78 : 0)
    }
  return (rest ^ 0xffffffff) >>> 0
}

/** Whether two texts are one address. */
export function isSameAddress(one: string, other: string, family: 'ipv4' | 'ipv6'): boolean {
  const list = new BlockList()
  list.addAddress(one, family)
  return list.check(other, family)
}
