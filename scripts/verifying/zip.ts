import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { type Entry, openPromise, type ZipFile } from 'yauzl'
import { memberBytes } from '../../db/support/zip-member.ts'

// Two programs may read one zip in two ways, if its end, its directory and the heads of its files contradict
// each other. An auditor's other tools must see what was verified, so such a zip is not read at all
// (docs/ledger.md#evidence).

const NAME = /^(?!.*\.\.)(?:[A-Za-z0-9_.-]+\/)*[A-Za-z0-9_.-]+$/
/** Encrypted, patched, strongly encrypted, with a masked directory. */
const UNREADABLE_FLAGS = 0x2061
/** The id of an extra field that says another name. */
const OTHER_NAME = 0x7075

/** Throws one sentence if a zip can be read in another way too. `entries`: all of its directory. */
async function assertOneForm(path: string, zip: ZipFile, entries: readonly Entry[]): Promise<void> {
  const { count, start, end } = directoryOf(path)
  const length = entries.reduce(
    (sum, entry) => sum + 46 + entry.fileNameLength + entry.extraFieldLength + entry.fileCommentLength,
    0,
  )
  if (count !== entries.length || start + length !== end)
    throw new Error('the directory of the zip is not what its end says')
  let last = 0
  for (const entry of entries.toSorted(
    (one, other) => one.relativeOffsetOfLocalHeader - other.relativeOffsetOfLocalHeader,
  )) {
    assertReadable(entry)
    const head = await zip.readLocalFileHeaderPromise(entry)
    const isThere = entry.relativeOffsetOfLocalHeader >= last && head.fileName.equals(entry.fileNameRaw)
    last = head.fileDataStart + entry.compressedSize
    if (!isThere || last > start) throw new Error(`${entry.fileName} does not lie where it should`)
  }
}

function assertReadable(entry: Entry): void {
  const { fileName, fileNameRaw, compressionMethod: method, generalPurposeBitFlag: flags } = entry
  if (
    !NAME.test(fileName) ||
    fileNameRaw.toString() !== fileName ||
    entry.extraFields.some(({ id }) => id === OTHER_NAME)
  )
    throw new Error('it has a file whose name is of another form')
  if ((flags & UNREADABLE_FLAGS) !== 0 || !(method === 0 || method === 8))
    throw new Error(`${fileName} is neither stored nor deflated`)
}

const [END, LARGE_END, LOCATOR] = [22, 56, 20]

/** The number of a zip's files, the start of its directory, and its required end. */
interface Directory {
  readonly count: number
  readonly start: number
  readonly end: number
}

/** Reads the directory's place from the end of a zip. Throws one sentence. */
function directoryOf(path: string): Directory {
  const [tail, size] = tailOf(path, END + LOCATOR + LARGE_END)
  const at = tail.length - END
  const isLast = at >= 0 && tail.readUInt32LE(at) === 0x06054b50 && tail.readUInt16LE(at + 20) === 0
  if (!isLast || tail.readUInt32LE(at + 4) !== 0 || tail.readUInt16LE(at + 8) !== tail.readUInt16LE(at + 10))
    throw new Error('there is something behind the zip, or it is on several disks')
  const isLarge = at >= LOCATOR && tail.readUInt32LE(at - LOCATOR) === 0x07064b50
  if (!isLarge)
    return checkDirectory(
      tail.readUInt16LE(at + 10),
      tail.readUInt32LE(at + 16),
      tail.readUInt32LE(at + 12),
      size - END,
    )
  const end = size - END - LOCATOR - LARGE_END
  if (
    at < LOCATOR + LARGE_END ||
    tail.readUInt32LE(0) !== 0x06064b50 ||
    tail.readBigUInt64LE(at - LOCATOR + 8) !== BigInt(end)
  )
    throw new Error('the end of the zip is not where it says')
  const [count, length, start] = [32, 40, 48].map((place) => Number(tail.readBigUInt64LE(place)))
  return checkDirectory(count, start, length, end)
}

function checkDirectory(count = 0, start = 0, length = 0, end: number): Directory {
  if (start + length !== end) throw new Error('the directory of the zip is not where its end says')
  return { count, start, end }
}

/** The last bytes of a file, at most so many, and its size. */
function tailOf(path: string, most: number): readonly [Buffer, number] {
  const file = openSync(path, 'r')
  try {
    const { size } = fstatSync(file)
    const tail = Buffer.alloc(Math.min(most, size))
    readSync(file, tail, 0, tail.length, size - tail.length)
    return [tail, size]
  } finally {
    closeSync(file)
  }
}

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
    return verifiedBytes(zip, entry)
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
async function* verifiedBytes(zip: ZipFile, entry: Entry): AsyncGenerator<Buffer> {
  const { fileName, crc32: said } = entry
  let crc = 0
  for await (const block of memberBytes(zip, entry)) {
    crc = crc32(block, crc)
    yield block
  }
  if (crc !== said) throw new Error(`${fileName} is not what the zip says`)
}
