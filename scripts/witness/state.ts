import { hash } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isFileNotFound, writePrivateFile } from '../../certs/authority/key-store.ts'
import { type Checkpoint, checkpointText, parseCheckpoint } from '../../db/ledger/tree/checkpoint.ts'
import { EMPTY_ROOT } from '../../db/ledger/tree/hashes.ts'
import { holdFileExclusively } from '../../db/sqlite/hold.ts'
import { messageOf } from '../../db/support/error-message.ts'

/**
 * The last cosigned checkpoint of each log, on the disk before anything is signed, and the note with the
 * cosignature. After a crash the note may be one checkpoint behind.
 */
export class WitnessState {
  readonly #directory: string

  constructor(directory: string) {
    this.#directory = directory
  }

  /** Opens a directory, for this process alone: two witnesses of one memory could cosign two trees. */
  static async open(directory: string): Promise<WitnessState> {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    holdFileExclusively(join(directory, 'lock'))
    return new WitnessState(directory)
  }

  /** The last checkpoint of a log; of no rows if none was cosigned. Rejects if the file cannot be read. */
  async last(origin: string): Promise<Checkpoint> {
    const path = this.#pathOf(origin)
    try {
      const checkpoint = parseCheckpoint(await readFile(path, 'utf8'))
      if (checkpoint.origin !== origin) throw new Error(`it is about ${checkpoint.origin}`)
      return checkpoint
    } catch (error) {
      if (isFileNotFound(error)) return { origin, size: 0, root: EMPTY_ROOT }
      throw new Error(`${path} cannot be read: ${messageOf(error)}`, { cause: error })
    }
  }

  /** Remembers a checkpoint. Resolves when it is on the disk: whole, or the one before it. */
  remember(checkpoint: Checkpoint): Promise<void> {
    return writePrivateFile(this.#pathOf(checkpoint.origin), checkpointText(checkpoint))
  }

  keep(origin: string, note: string): Promise<void> {
    return writePrivateFile(this.#noteOf(hash('sha256', origin)), note)
  }

  /** The last note of the log whose origin has this digest, in hex; null if none was cosigned. */
  async kept(digest: string): Promise<string | null> {
    try {
      return await readFile(this.#noteOf(digest), 'utf8')
    } catch (error) {
      if (isFileNotFound(error)) return null
      throw error
    }
  }

  // An origin may hold slashes.
  #pathOf = (origin: string): string => join(this.#directory, `${hash('sha256', origin)}.checkpoint`)
  #noteOf = (digest: string): string => join(this.#directory, `${digest}.note`)
}
