import { createHash } from 'node:crypto'
import { constants, crc32, deflateRawSync } from 'node:zlib'

/** Characters that are deflated at once: a millisecond. */
const BLOCK = 262_144
/** Half the time of 6, and 3 % more bytes of a pack. */
const LEVEL = 3

/** A file of a zip, while it is made. */
export class ZippedFile {
  readonly name: string
  readonly #digest = createHash('sha256')
  #blocks: Buffer[] = []
  #text = ''
  crc = 0
  size = 0
  /** The bytes in the zip. */
  packed = 0

  constructor(name: string) {
    this.name = name
  }

  add(text: string): void {
    this.#text += text
    if (this.#text.length >= BLOCK) this.#blocks.push(this.#deflate(this.#text, constants.Z_SYNC_FLUSH))
  }

  /** Returns the bytes of the zip that are made and were not taken yet. */
  taken(): readonly Buffer[] {
    return this.#blocks.splice(0)
  }

  /** Returns the last bytes. */
  end(last: string | Uint8Array = this.#text): Buffer {
    return this.#deflate(last, constants.Z_FINISH)
  }

  /** Returns its line in SHA256SUMS, once. */
  sum(): string {
    return `${this.#digest.digest('hex')}  ${this.name}\n`
  }

  #deflate(content: string | Uint8Array, finishFlush: number): Buffer {
    const bytes = Buffer.from(content)
    this.#text = ''
    this.#digest.update(bytes)
    this.crc = crc32(bytes, this.crc)
    this.size += bytes.length
    const block = deflateRawSync(bytes, { level: LEVEL, finishFlush })
    this.packed += block.length
    return block
  }
}

/** Larger counts and sizes stand elsewhere. */
const [MAX_16, MAX_32] = [0xff_ff, 0xff_ff_ff_ff]
/** Sizes stand behind a file, and its name is UTF-8; it is deflated. */
const FORM = [0x08_08, 8]
/** The version of PKZIP that reads it: another one if a size has 64 bits. */
const [PLAIN, LARGE] = [20, 45]
const ON_UNIX = 0x03_00 | LARGE
const MODE = 0o100644 * 0x1_00_00

/**
 * Makes a zip of files that are written one after the other (PKWARE's APPNOTE, 4.3). No library does what a pack needs:
 * one reading of the rows fills six files, of which five are held deflated until the first is written, each with its
 * SHA-256. yazl and archiver take streams, one at a time, and give pieces of 16 KiB, so the rows would be read once for
 * each; fflate and @zip.js deflate in JavaScript, several times slower.
 */
export class ZipWriter {
  readonly #time: Buffer
  readonly #directory: Buffer[] = []
  #files = 0
  #at = 0
  sums = ''

  /** `at`: the time of all files. ms since the epoch. */
  constructor(at: number) {
    const time = new Date(Math.max(at, FIRST_YEAR))
    const day = ((time.getUTCFullYear() - 1980) << 9) | ((time.getUTCMonth() + 1) << 5) | time.getUTCDate()
    const clock = (time.getUTCHours() << 11) | (time.getUTCMinutes() << 5) | (time.getUTCSeconds() >> 1)
    this.#time = int16(clock, day)
  }

  /** Returns the head of a file. */
  begin(file: ZippedFile): Buffer {
    const name = Buffer.from(file.name)
    const form = [int32(0x04034b50), int16(PLAIN, ...FORM), this.#time]
    return Buffer.concat([...form, int32(0, 0, 0), int16(name.length, 0), name])
  }

  /** Returns the last bytes of the file that was begun, and what stands behind it. */
  end(file: ZippedFile, last?: string | Uint8Array): Buffer {
    const block = file.end(last)
    const { crc, size, packed } = file
    const name = Buffer.from(file.name)
    const start = this.#at
    const isLarge = Math.max(size, packed, start) >= MAX_32
    const extra = isLarge ? Buffer.concat([int16(1, 24), int64(size, packed, start)]) : Buffer.alloc(0)
    const [sizes, place] = isLarge ? [[MAX_32, MAX_32], MAX_32] : [[packed, size], start]
    this.#directory.push(
      ...[int32(0x02014b50), int16(ON_UNIX, isLarge ? LARGE : PLAIN, ...FORM), this.#time],
      ...[int32(crc, ...sizes), int16(name.length, extra.length, 0, 0, 0), int32(MODE, place), name, extra],
    )
    const ofSizes = Math.max(size, packed) >= MAX_32 ? int64 : int32
    const behind = Buffer.concat([int32(0x08074b50, crc), ofSizes(packed, size)])
    this.#at += HEAD + name.length + packed + behind.length
    this.#files += 1
    this.sums += file.sum()
    return Buffer.concat([block, behind])
  }

  /** Returns a whole file. */
  file(name: string, content: string | Uint8Array): Buffer {
    const file = new ZippedFile(name)
    return Buffer.concat([this.begin(file), this.end(file, content)])
  }

  /** Returns the directory, which ends the zip. */
  close(): Buffer {
    const directory = Buffer.concat(this.#directory)
    const [start, { length }, count] = [this.#at, directory, this.#files]
    const isLarge = count >= MAX_16 || start + length >= MAX_32
    const large = isLarge
      ? [
          ...[int32(0x06064b50), int64(44), int16(ON_UNIX, LARGE), int32(0, 0)],
          ...[int64(count, count, length, start), int32(0x07064b50, 0), int64(start + length), int32(1)],
        ]
      : []
    const [few, ...place] = isLarge ? [MAX_16, MAX_32, MAX_32] : [count, length, start]
    return Buffer.concat([
      ...[directory, ...large, int32(0x06054b50), int16(0, 0, few, few), int32(...place), int16(0)],
    ])
  }
}

/** Bytes before a name. */
const HEAD = 30
/** The first that a zip can say. */
const FIRST_YEAR = Date.UTC(1980, 0)

function littleEndian(bytes: number, values: readonly number[]): Buffer {
  const fields = Buffer.alloc(bytes * values.length)
  for (const [at, value] of values.entries()) {
    fields.writeUIntLE(value % 2 ** 32, at * bytes, Math.min(bytes, 4))
    if (bytes === 8) fields.writeUInt32LE(Math.floor(value / 2 ** 32), at * bytes + 4)
  }
  return fields
}

const int16 = (...values: readonly number[]): Buffer => littleEndian(2, values)
const int32 = (...values: readonly number[]): Buffer => littleEndian(4, values)
const int64 = (...values: readonly number[]): Buffer => littleEndian(8, values)
