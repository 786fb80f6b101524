import { type VerifierKey, verifyNoteAside } from './note.ts'
import { type LogTrust, type SignedCheckpoint, type WitnessSummary, witnessAt } from './trusted.ts'

/** Says who has signed a checkpoint. */
export interface CheckpointSeals {
  readonly checkpoint: SignedCheckpoint
  /** True too if nobody asks for a signature of the log. */
  readonly isByLog: boolean
  readonly isByTrusted: boolean
  readonly witnesses: readonly WitnessSummary[]
}

/** Checkpoints that are read before their turn. A signature takes as long as ten rows, and the process has four threads for them. */
const MAX_AHEAD = 16

type Keys = Pick<LogTrust, 'keys' | 'witnesses'>

/** Verifies the signatures of checkpoints in their order, and meanwhile those of the next. `own`: the log's keys. */
export async function* sealsAhead(
  checkpoints: AsyncIterable<SignedCheckpoint> | Iterable<SignedCheckpoint>,
  trusted: Keys,
  own: readonly VerifierKey[],
): AsyncGenerator<CheckpointSeals> {
  const coming: Promise<CheckpointSeals>[] = []
  let failure: unknown
  try {
    for await (const checkpoint of checkpoints) {
      coming.push(sealsOf(checkpoint, trusted, own))
      const next = coming.length > MAX_AHEAD ? coming.shift() : undefined
      if (next) yield await next
    }
  } catch (error) {
    failure = error
  }
  // Those before one that cannot be read are verified first.
  for (const seals of coming) yield await seals
  if (failure !== undefined) throw failure
}

/** Verifies the signatures of one. `own`: null if none of the log's is asked for. */
export async function sealsOf(
  checkpoint: SignedCheckpoint,
  { keys, witnesses }: Keys,
  own: readonly VerifierKey[] | null,
): Promise<CheckpointSeals> {
  const { note } = checkpoint
  const isBy = async (some: readonly VerifierKey[]): Promise<boolean> =>
    (await Promise.all(some.map((key) => verifyNoteAside(note, key)))).some(({ good }) => good)
  const [isByLog, isByTrusted, said] = await Promise.all([
    own === null || isBy(own),
    isBy(keys),
    Promise.all(witnesses.map(async (key) => witnessAt(checkpoint, key, await verifyNoteAside(note, key)))),
  ])
  return { checkpoint, isByLog, isByTrusted, witnesses: said.flat() }
}
