import { pipeline } from 'node:stream'
import { createInflateRaw } from 'node:zlib'
import type { Entry, ZipFile } from 'yauzl'

/** The bytes of a piece: yauzl's own are 16 KiB, and each takes a turn of the loop and of a thread that inflates. */
const [MIN_PIECE, MAX_PIECE] = [1_024, 262_144]

/**
 * Reads a member of a zip in pieces of 256 KiB, stored or deflated. Throws one sentence if it is not as
 * long as the directory says. Does NOT look at its CRC.
 */
export async function* memberBytes(zip: ZipFile, entry: Entry): AsyncGenerator<Buffer> {
  const { compressionMethod, uncompressedSize, fileName } = entry
  if (compressionMethod !== DEFLATED) return yield* await zip.openReadStreamPromise(entry)
  const packed = await zip.openReadStreamPromise(entry, { decodeFileData: false })
  const inflate = createInflateRaw({
    chunkSize: Math.min(Math.max(uncompressedSize, MIN_PIECE), MAX_PIECE),
  })
  // An error reaches who reads it.
  pipeline(packed, inflate, () => {})
  let left = uncompressedSize
  for await (const piece of inflate as AsyncIterable<Buffer>) {
    left -= piece.length
    if (left < 0) break
    yield piece
  }
  if (left !== 0) throw new Error(`${fileName} is not as long as the zip says`)
}

const DEFLATED = 8
