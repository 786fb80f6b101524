import { statSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { type Entry, openPromise } from 'yauzl'
import { assertOneForm } from './zip-form.ts'

/**
 * The most bytes that all files of a zip may have: so many, and this many for each byte of the zip. Rows hold
 * digests, which no method makes shorter: a pack is some five times shorter than its files.
 */
const MAX_SMALL_BYTES = 16 * 1024 * 1024
const MAX_INFLATION = 100

/** The files of a zip, by name: strangers' bytes, read as they are needed. */
export interface ZipArchive {
  readonly names: readonly string[]
  /** The length of a file, in bytes; 0 if it is not there. */
  readonly length: (name: string) => number
  /** A whole file. Throws one sentence if it is missing, or longer than `limit` bytes. */
  readonly bytes: (name: string, limit: number) => Promise<Buffer>
  readonly stream: (name: string) => Promise<AsyncIterable<Buffer>>
  readonly close: () => void
}

/**
 * Opens a zip. Throws one sentence if it is none, names one file twice, can be read in another way too, or is
 * made to grow out of all proportion.
 */
export async function openZip(path: string): Promise<ZipArchive> {
  const zip = await openPromise(path, { autoClose: false })
  const entries = new Map<string, Entry>()
  for await (const entry of zip.eachEntry()) {
    if (entries.has(entry.fileName)) throw new Error(`${entry.fileName} is in the zip twice`)
    entries.set(entry.fileName, entry)
  }
  await assertOneForm(path, zip, [...entries.values()])
  const length = (name: string): number => entries.get(name)?.uncompressedSize ?? 0
  const all = [...entries.keys()].reduce((sum, name) => sum + length(name), 0)
  if (all > MAX_SMALL_BYTES + MAX_INFLATION * statSync(path).size)
    throw new Error(`its files are ${all} bytes long, out of all proportion to the zip`)
  const stream = async (name: string): Promise<AsyncIterable<Buffer>> => {
    const entry = entries.get(name)
    if (!entry) throw new Error(`${name} is not in the zip`)
    return verifiedBytes(await zip.openReadStreamPromise(entry), entry)
  }
  return {
    names: [...entries.keys()],
    length,
    stream,
    bytes: async (name, limit) => {
      if (length(name) > limit) throw new Error(`${name} is longer than ${limit} bytes`)
      const chunks: Buffer[] = []
      for await (const chunk of await stream(name)) chunks.push(chunk)
      return Buffer.concat(chunks)
    },
    close: () => zip.close(),
  }
}

/** The same bytes. Throws one sentence after the last if they are not those that the zip says. */
async function* verifiedBytes(
  bytes: AsyncIterable<Buffer>,
  { fileName, crc32: said }: Entry,
): AsyncGenerator<Buffer> {
  let crc = 0
  for await (const block of bytes) {
    crc = crc32(block, crc)
    yield block
  }
  if (crc !== said) throw new Error(`${fileName} is not what the zip says`)
}
