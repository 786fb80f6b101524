import { crc32, deflateRawSync } from 'node:zlib'

/** One file of a zip, as its headers say it. What is not said is as it must be. */
export interface ZipEntry {
  readonly name: string
  readonly data: Buffer
  /** 0: stored, 8: deflated. */
  readonly method?: number
  /** The bytes that lie in the zip. */
  readonly stored?: Buffer
  readonly flags?: number
  readonly crc?: number
  readonly compressed?: number
  readonly size?: number
  /** In the header in front of the bytes. */
  readonly localName?: string
  readonly localSize?: number
  readonly extra?: Buffer
  /** Where the header in front of the bytes lies. */
  readonly offset?: number
  /** Whether nothing of it is written but its line in the directory. */
  readonly isGhost?: boolean
}

/** The end of a zip, as it says it. */
export interface End {
  readonly count?: number
  readonly size?: number
  readonly offset?: number
  readonly disk?: number
  readonly comment?: Buffer
  /** In front of all, and behind all. */
  readonly before?: Buffer
  readonly behind?: Buffer
}

/** Writes a zip of entries that may say anything. */
export function zipOf(entries: readonly ZipEntry[], end: End = {}): Buffer {
  const parts: Buffer[] = [end.before ?? Buffer.alloc(0)]
  const directory: Buffer[] = []
  let at = parts[0]?.length ?? 0
  for (const entry of entries) {
    const method = entry.method ?? 8
    const bytes = entry.stored ?? (method === 8 ? deflateRawSync(entry.data) : entry.data)
    const said = {
      flags: entry.flags ?? 0x800,
      method,
      crc: entry.crc ?? crc32(entry.data),
      compressed: entry.compressed ?? bytes.length,
      size: entry.size ?? entry.data.length,
    }
    const local = Buffer.concat([
      headerOf(
        LOCAL,
        { ...said, size: entry.localSize ?? said.size },
        entry.localName ?? entry.name,
        Buffer.alloc(0),
      ),
      bytes,
    ])
    directory.push(headerOf(CENTRAL, said, entry.name, entry.extra ?? Buffer.alloc(0), entry.offset ?? at))
    if (entry.isGhost) continue
    parts.push(local)
    at += local.length
  }
  const listed = Buffer.concat(directory)
  const last = Buffer.alloc(22)
  last.write('PK\u0005\u0006', 'latin1')
  last.writeUInt16LE(end.disk ?? 0, 4)
  last.writeUInt16LE(end.disk ?? 0, 6)
  last.writeUInt16LE(end.count ?? entries.length, 8)
  last.writeUInt16LE(end.count ?? entries.length, 10)
  last.writeUInt32LE(end.size ?? listed.length, 12)
  last.writeUInt32LE(end.offset ?? at, 16)
  last.writeUInt16LE(end.comment?.length ?? 0, 20)
  return Buffer.concat([
    ...parts,
    listed,
    last,
    end.comment ?? Buffer.alloc(0),
    end.behind ?? Buffer.alloc(0),
  ])
}

const LOCAL = 'PK\u0003\u0004'
const CENTRAL = 'PK\u0001\u0002'

interface Said {
  readonly flags: number
  readonly method: number
  readonly crc: number
  readonly compressed: number
  readonly size: number
}

function headerOf(
  kind: typeof LOCAL | typeof CENTRAL,
  said: Said,
  name: string,
  extra: Buffer,
  offset = 0,
): Buffer {
  const isLocal = kind === LOCAL
  const bytes = Buffer.from(name)
  const head = Buffer.alloc(isLocal ? 30 : 46)
  head.write(kind, 'latin1')
  // "Made by" stands in the directory alone.
  const at = isLocal ? 4 : 6
  if (!isLocal) head.writeUInt16LE(20, 4)
  head.writeUInt16LE(20, at)
  head.writeUInt16LE(said.flags, at + 2)
  head.writeUInt16LE(said.method, at + 4)
  head.writeUInt16LE(0x21, at + 8)
  head.writeUInt32LE(said.crc, at + 10)
  head.writeUInt32LE(said.compressed, at + 14)
  head.writeUInt32LE(said.size, at + 18)
  head.writeUInt16LE(bytes.length, at + 22)
  head.writeUInt16LE(extra.length, at + 24)
  if (!isLocal) head.writeUInt32LE(offset, 42)
  return Buffer.concat([head, bytes, extra])
}
