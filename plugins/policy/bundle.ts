import { createHash } from 'node:crypto'
import { constants, open, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { messageOf } from '../../db/support/error-message.ts'
import { isObject } from '../../db/support/json.ts'
import { errorCode } from '../operator-files/secret-file.ts'

const BLOCK = 512
/** The places of the fields of a header (POSIX ustar). */
const NAME = [0, 100] as const
const SIZE = [124, 136] as const
const TYPE = [156, 157] as const
const REGULAR: ReadonlySet<string> = new Set(['', '0'])

/**
 * The regular files of a tar archive by their names, without a leading `/` or `./`. Throws an Error with one
 * sentence if it is cut short, or names a file twice. Does NOT read names longer than 100 bytes whole.
 */
function tarFiles(archive: Buffer): ReadonlyMap<string, Buffer> {
  const files = new Map<string, Buffer>()
  for (let at = 0; at + BLOCK <= archive.length && archive[at] !== 0; ) {
    const header = archive.subarray(at, at + BLOCK)
    const name = field(header, NAME).replace(/^\.?\//, '')
    const start = at + BLOCK
    const end = start + sizeOf(header)
    if (end > archive.length) throw new Error('it is cut short')
    if (REGULAR.has(field(header, TYPE))) {
      if (files.has(name)) throw new Error(`it holds ${name} twice`)
      files.set(name, archive.subarray(start, end))
    }
    at = start + Math.ceil((end - start) / BLOCK) * BLOCK
  }
  return files
}

function field(header: Buffer, [from, to]: readonly [number, number]): string {
  const text = header.toString('latin1', from, to)
  const end = text.indexOf('\0')
  return end < 0 ? text : text.slice(0, end)
}

function sizeOf(header: Buffer): number {
  const digits = field(header, SIZE).trim()
  if (!/^[0-7]{1,12}$/.test(digits)) throw new Error('it is no tar archive')
  return Number.parseInt(digits, 8)
}

export interface PolicyBundle {
  /** The module, not compiled yet. */
  readonly wasm: Uint8Array
  /** JSON text of an object, or null if there is none. */
  readonly data: string | null
  /** Hex SHA-256 over the bytes of the files, as they lie on the disk. */
  readonly digest: string
}

interface BundleSource {
  /** The path in the operator's file: absolute, or relative to `directory`. */
  readonly bundle: string
  readonly data: string | undefined
  readonly directory: string
}

const MAX_FILE_BYTES = 16 * 1_048_576
const MAX_UNPACKED_BYTES = 4 * MAX_FILE_BYTES
const WORLD_WRITABLE = 0o002

/**
 * Reads a `policy.wasm`, or a bundle .tar.gz that holds one. Throws an Error with one sentence if it cannot
 * be used; a file or directory that everybody may write to is refused (docs/threats.md#threat-34). Does NOT
 * check the signature of a bundle, and does NOT run anything.
 */
export async function readBundle({ bundle, data, directory }: BundleSource): Promise<PolicyBundle> {
  const bytes = await readPolicyFile(resolve(directory, bundle), bundle)
  const own = data === undefined ? null : await readPolicyFile(resolve(directory, data), data)
  const digest = createHash('sha256').update(`${bytes.length}\0`).update(bytes)
  if (own) digest.update(own)
  const unpacked = unpack(bytes, bundle)
  const found = own ?? unpacked.data
  return {
    // A copy, so that it does not drag a whole archive along.
    wasm: Uint8Array.from(unpacked.wasm),
    data: found && jsonObject(found, own && data ? data : `data.json of ${bundle}`),
    digest: digest.digest('hex'),
  }
}

async function readPolicyFile(path: string, name: string): Promise<Buffer> {
  try {
    const { mode } = await stat(dirname(path))
    // Without O_NONBLOCK a named pipe that nobody writes to would hold the boot for ever.
    await using handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const stats = await handle.stat()
    if (!stats.isFile()) throw new Error(`${name} is not a regular file`)
    if (((stats.mode | mode) & WORLD_WRITABLE) !== 0) {
      throw new Error(`everybody may write to ${name} or to its directory: chmod o-w them`)
    }
    if (stats.size > MAX_FILE_BYTES) throw new Error(`${name} is larger than 16 MiB`)
    return await handle.readFile()
  } catch (error) {
    if (error instanceof Error && !('code' in error)) throw error
    throw new Error(`${name} cannot be read (${errorCode(error)})`, { cause: error })
  }
}

function unpack(bytes: Buffer, name: string): { wasm: Buffer; data: Buffer | null } {
  if (bytes.subarray(0, 4).equals(Buffer.from('\0asm'))) return { wasm: bytes, data: null }
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) {
    throw new Error(`${name} is neither a policy.wasm nor a bundle .tar.gz`)
  }
  const files = archiveOf(bytes, name)
  const wasm = files.get('policy.wasm')
  if (!wasm) throw new Error(`${name} holds no /policy.wasm: build it with opa build -t wasm`)
  return { wasm, data: files.get('data.json') ?? null }
}

function archiveOf(bytes: Buffer, name: string): ReadonlyMap<string, Buffer> {
  try {
    return tarFiles(gunzipSync(bytes, { maxOutputLength: MAX_UNPACKED_BYTES }))
  } catch (error) {
    throw new Error(`${name} cannot be unpacked: ${messageOf(error)}`, { cause: error })
  }
}

function jsonObject(bytes: Buffer, name: string): string {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    const value: unknown = JSON.parse(text)
    if (isObject(value)) return text
  } catch (error) {
    throw new Error(`${name} is not JSON: ${messageOf(error)}`, { cause: error })
  }
  throw new Error(`${name} must hold a JSON object`)
}
