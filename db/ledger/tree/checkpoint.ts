import { HASH_BYTES } from './hashes.ts'
import { fromBase64, MalformedNote } from './note.ts'

/** The head of a tree (C2SP tlog-checkpoint). */
export interface Checkpoint {
  /** `<trust domain>/<organisation>/audit`, with a number after it from the second tree on. */
  readonly origin: string
  /** The number of its leaves. */
  readonly size: number
  readonly root: Buffer
}

export const checkpointText = ({ origin, size, root }: Checkpoint): string =>
  `${origin}\n${size}\n${root.toString('base64')}\n`

/** Reads the text of a note. Lines after the third say nothing here. Throws {@link MalformedNote}. */
export function parseCheckpoint(text: string): Checkpoint {
  const [origin = '', size = '', root = '', ...more] = text.split('\n')
  const count = /^(?:0|[1-9][0-9]{0,15})$/.test(size) ? Number(size) : Number.NaN
  if (origin === '' || !Number.isSafeInteger(count) || more.at(-1) !== '')
    throw new MalformedNote('a checkpoint is an origin, a size and a root, each on a line')
  const bytes = fromBase64(root)
  if (bytes.length !== HASH_BYTES) throw new MalformedNote('the root of a checkpoint has 32 bytes')
  return { origin, size: count, root: bytes }
}
