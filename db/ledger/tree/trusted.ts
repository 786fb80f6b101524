import { type Checkpoint, parseCheckpoint } from './checkpoint.ts'
import {
  MalformedNote,
  type NoteVerification,
  parseNote,
  type SignedNote,
  type VerifierKey,
  verifyNoteSignature,
} from './note.ts'

export interface LogTrust {
  /** Verifier keys of the log. */
  readonly keys: readonly VerifierKey[]
  readonly witnesses: readonly VerifierKey[]
  readonly checkpoints: readonly SignedCheckpoint[]
  /** One of the checkpoints: only what came behind it is verified. */
  readonly since?: SignedCheckpoint | undefined
  /** Absent: time stamps are not checked. */
  readonly stamps?: StampWatch
}

export const NO_LOG_TRUST: LogTrust = { keys: [], witnesses: [], checkpoints: [] }

export const isEmptyLogTrust = ({ keys, witnesses, checkpoints, stamps }: LogTrust): boolean =>
  keys.length + witnesses.length + checkpoints.length === 0 && !stamps?.isWanted

/** Checks time stamps in one verification. The database knows no certificates: the verifier does. */
export interface StampWatch {
  /** True if an authority, or a time stamp, was given from elsewhere. */
  readonly isWanted: boolean
  /** Checks the time stamps of a checkpoint. Returns the faults, each as a sentence. */
  readonly check: (checkpoint: SignedCheckpoint, stamps: readonly Uint8Array[]) => Promise<readonly string[]>
  readonly end: () => StampTally
}

export interface StampTally {
  /** Faults of single checkpoints, each as a sentence. */
  readonly problems: readonly string[]
  readonly stamped: readonly StampSummary[]
  /** Good ones, by authorities that were not given. */
  readonly unchecked: number
}

/** An authority that has stamped checkpoints, the last of them so. */
export interface StampSummary extends WitnessSummary {
  readonly count: number
}

export const NO_STAMPS: StampTally = { problems: [], stamped: [], unchecked: 0 }

export interface SignedCheckpoint extends Checkpoint {
  readonly note: SignedNote
  /** The time stamps stored with it. DER, or whatever is there. */
  readonly stamps?: readonly Uint8Array[]
}

/** Reads a signed checkpoint. Verifies nothing. Throws `MalformedNote`. */
export function parseSignedCheckpoint(text: string): SignedCheckpoint {
  const note = parseNote(text)
  return { ...parseCheckpoint(note.text), note }
}

/** A checkpoint in the file of an anchor, with its lines of signatures. */
const WHOLE_NOTE = /^[^\n]+\n(?:0|[1-9][0-9]{0,15})\n[A-Za-z0-9+/]{43}=\n\n(?:— [^\n]+\n)+/gmu

/** Reads an anchor's file (docs/ledger.md#anchors). Passes over a note that a crash left half-written. */
export const parseSignedCheckpoints = (text: string): readonly SignedCheckpoint[] =>
  (text.match(WHOLE_NOTE) ?? []).flatMap((whole) => {
    try {
      return [parseSignedCheckpoint(whole)]
    } catch (error) {
      if (error instanceof MalformedNote) return []
      throw error
    }
  })

export const isSignedBy = (note: SignedNote, keys: readonly VerifierKey[]): boolean =>
  keys.some((key) => verifyNoteSignature(note, key).good)

/** Faults of the checkpoint that a verification begins behind, each as a sentence. `own`: the log's keys. */
export function sinceFaults(
  { since, keys, witnesses }: LogTrust,
  own: readonly VerifierKey[],
): readonly string[] {
  if (!since) return []
  const what = `the kept checkpoint of ${since.size} rows`
  const signs = isSignedBy(since.note, keys.length > 0 ? keys : own)
  const silent = witnesses.filter((key) => witnessesOf(since, [key]).length === 0)
  return [
    ...(signs ? [] : [`${what} is not signed by ${keys.length > 0 ? 'the key that was given' : 'its log'}`]),
    ...silent.map(({ name }) => `${what} is not cosigned by the witness ${name}`),
  ]
}

export interface WitnessSummary {
  readonly name: string
  /** RFC 3339. */
  readonly at: string
  /** The rows under the checkpoint. */
  readonly size: number
}

export const witnessesOf = (
  checkpoint: Pick<SignedCheckpoint, 'note' | 'size'>,
  keys: readonly VerifierKey[],
): readonly WitnessSummary[] =>
  keys.flatMap((key) => witnessAt(checkpoint, key, verifyNoteSignature(checkpoint.note, key)))

/** The witness of a good cosignature; none of another one. */
export const witnessAt = (
  { size }: Pick<SignedCheckpoint, 'size'>,
  { name }: VerifierKey,
  signed: NoteVerification,
): readonly WitnessSummary[] =>
  signed.good && signed.at !== undefined
    ? [{ name, at: new Date(signed.at * 1_000).toISOString(), size }]
    : []
