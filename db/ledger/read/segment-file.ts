import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { LRUCache } from 'lru-cache'
import { fromFdPromise } from 'yauzl'
import { messageOf } from '../../support/error-message.ts'
import { UnreadableSegment } from '../tree/rows.ts'

/** A file of the archive, as the table of segments says it. */
export interface SegmentFile {
  readonly folder: string
  readonly file: string
  /** Hex. */
  readonly sha256: string
}

/** The digest of each file that was read whole, by what changes with its bytes. */
const digests = new LRUCache<string, string>({ max: 10_000 })

const READ_AT_ONCE = 1_048_576
const LF = 0x0a

/**
 * Reads a member of a segment in pieces. The file is compared with its digest first, and with itself at the end:
 * throws {@link UnreadableSegment} if it is another than was archived, so pieces are true once all are read.
 */
export async function* memberPieces(
  segment: SegmentFile,
  name: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  try {
    await using file = await open(
      join(segment.folder, segment.file),
      constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
    )
    const identity = await identityOf(file)
    if ((await digestOf(file, identity, signal)) !== segment.sha256)
      throw new UnreadableSegment('it is another file than was archived')
    const zip = await fromFdPromise(file.fd, { autoClose: false })
    for await (const entry of zip.eachEntry()) {
      if (entry.fileName !== name) continue
      for await (const piece of await zip.openReadStreamPromise(entry)) {
        signal.throwIfAborted()
        yield piece
      }
      if ((await identityOf(file)) !== identity)
        throw new UnreadableSegment('it was changed while it was read')
      return
    }
    throw new UnreadableSegment(`it has no ${name}`)
  } catch (error) {
    if (error instanceof UnreadableSegment || signal.aborted) throw error
    // The folder's path is none of the callers' business.
    const code = error instanceof Error && 'code' in error ? String(error.code) : messageOf(error)
    throw new UnreadableSegment(`it cannot be read here (${code})`, { cause: error })
  }
}

async function identityOf(file: FileHandle): Promise<string> {
  const { dev, ino, size, mtimeNs, ctimeNs } = await file.stat({ bigint: true })
  return [dev, ino, size, mtimeNs, ctimeNs].join()
}

async function digestOf(file: FileHandle, identity: string, signal: AbortSignal): Promise<string> {
  const known = digests.get(identity)
  if (known !== undefined) return known
  const sum = createHash('sha256')
  const bytes = Buffer.alloc(READ_AT_ONCE)
  for (let at = 0; ; ) {
    const { bytesRead } = await file.read(bytes, 0, bytes.length, at)
    signal.throwIfAborted()
    if (bytesRead === 0) break
    sum.update(bytes.subarray(0, bytesRead))
    at += bytesRead
  }
  const digest = sum.digest('hex')
  digests.set(identity, digest)
  return digest
}

/** Blocks of whole lines of the rows of a segment, each in bytes of its own. */
export async function* rowBlocks(segment: SegmentFile, signal: AbortSignal): AsyncGenerator<Buffer> {
  let rest: Buffer[] = []
  for await (const piece of memberPieces(segment, 'rows.ndjson', signal)) {
    const end = piece.lastIndexOf(LF) + 1
    if (end > 0) yield Buffer.concat([...rest, piece.subarray(0, end)])
    rest = end > 0 ? [piece.subarray(end)] : [...rest, piece]
  }
}
