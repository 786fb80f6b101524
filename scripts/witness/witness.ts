import { hash, type KeyObject } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isFileNotFound, nullIfMissing, writePrivateFile } from '../../certs/authority/key-store.ts'
import { type Checkpoint, checkpointText, parseCheckpoint } from '../../db/ledger/tree/checkpoint.ts'
import { EMPTY_ROOT, HASH_BYTES } from '../../db/ledger/tree/hashes.ts'
import {
  cosignNote,
  fromBase64,
  MalformedNote,
  type NoteSignature,
  noteOf,
  type VerifierKey,
  verifyNoteSignature,
} from '../../db/ledger/tree/note.ts'
import { isConsistent } from '../../db/ledger/tree/proofs.ts'
import { parseSignedCheckpoint, type SignedCheckpoint } from '../../db/ledger/tree/trusted.ts'
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
  kept(digest: string): Promise<string | null> {
    return nullIfMissing(readFile(this.#noteOf(digest), 'utf8'))
  }

  // An origin may hold slashes.
  #pathOf = (origin: string): string => join(this.#directory, `${hash('sha256', origin)}.checkpoint`)
  #noteOf = (digest: string): string => join(this.#directory, `${digest}.note`)
}

export interface WitnessAnswer {
  readonly status: 200 | 400 | 403 | 404 | 409 | 422
  readonly body: string
  readonly type?: string
}

interface WitnessOptions {
  readonly name: string
  readonly key: KeyObject
  /** Keys of the logs that it knows. */
  readonly logs: readonly VerifierKey[]
  readonly state: WitnessState
  /** ms since the epoch. */
  readonly clock: () => number
}

/**
 * Cosigns a checkpoint (C2SP tlog-witness) that follows from the last cosigned one, once it is remembered on
 * the disk. Requests of one log are answered one after the other.
 */
export function witness({
  name,
  key,
  logs,
  state,
  clock,
}: WitnessOptions): (body: string) => Promise<WitnessAnswer> {
  const queues = new Map<string, Promise<unknown>>()
  return async (body) => {
    const asked = requestIn(body)
    if (!asked) return { status: 400, body: 'this is no request of a checkpoint\n' }
    const { checkpoint } = asked
    const known = logs.filter(({ name: origin }) => origin === checkpoint.origin)
    if (known.length === 0) return { status: 404, body: 'this log is not known here\n' }
    // A key that is known and has not signed, though it is named, makes the note no note.
    const named = known.filter((log) => checkpoint.note.signatures.some((each) => isOf(each, log)))
    if (named.length === 0 || !named.every((log) => verifyNoteSignature(checkpoint.note, log).good))
      return { status: 403, body: 'this log has not signed it\n' }
    const turn = (queues.get(checkpoint.origin) ?? Promise.resolve()).then(() => cosign(asked, named))
    queues.set(
      checkpoint.origin,
      turn.catch(() => {}),
    )
    return turn
  }

  async function cosign(
    { old, proof, checkpoint }: CheckpointRequest,
    by: readonly VerifierKey[],
  ): Promise<WitnessAnswer> {
    const { origin, note } = checkpoint
    if (old > checkpoint.size) return { status: 400, body: 'the old size is the larger one\n' }
    const last = await state.last(origin)
    if (old !== last.size) return { status: 409, body: `${last.size}\n`, type: 'text/x.tlog.size' }
    // Another root of the same size too: there is no proof from the one to the other.
    if (!isConsistent(last, checkpoint, proof))
      return { status: 422, body: 'the proof does not lead from the last checkpoint to this one\n' }
    if (checkpoint.size !== last.size) await state.remember(checkpoint)
    const line = cosignNote(note.text, name, key, Math.floor(clock() / 1_000))
    const verified = note.signatures.filter((signature) => by.some((log) => isOf(signature, log)))
    await state.keep(origin, noteOf(note.text, [...verified.map((signature) => signature.line), line]))
    return { status: 200, body: `${line}\n` }
  }
}

const isOf = (signature: NoteSignature, { name, id }: VerifierKey): boolean =>
  signature.name === name && signature.id === id

interface CheckpointRequest {
  readonly old: number
  readonly proof: readonly Buffer[]
  readonly checkpoint: SignedCheckpoint
}

const MAX_CONSISTENCY_HASHES = 63

function requestIn(body: string): CheckpointRequest | null {
  const end = body.indexOf('\n\n')
  const [first = '', ...lines] = body.slice(0, Math.max(end, 0)).split('\n')
  const [, old] = /^old (0|[1-9][0-9]{0,15})$/.exec(first) ?? []
  if (old === undefined || lines.length > MAX_CONSISTENCY_HASHES) return null
  try {
    const proof = lines.map(fromBase64)
    const checkpoint = parseSignedCheckpoint(body.slice(end + 2))
    // Lines after the root are cosigned as they stand, and a cosignature says nothing of them.
    const isWhole = !checkpoint.note.text.includes('\n\n')
    return isWhole && proof.every(({ length }) => length === HASH_BYTES)
      ? { old: Number(old), proof, checkpoint }
      : null
  } catch (error) {
    if (error instanceof MalformedNote) return null
    throw error
  }
}
