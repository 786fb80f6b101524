import {
  MalformedNote,
  noteOf,
  parseNote,
  signatureIn,
  type VerifierKey,
  verifyNoteSignature,
} from '../../../db/ledger/tree/note.ts'
import { type CheckpointAnchor, type PendingCheckpoint, RollbackError } from './anchor.ts'
import type { PostToAnchor } from './web.ts'

/** The size in an answer of 409 (C2SP tlog-witness). */
const SIZE = /^(0|[1-9][0-9]{0,15})\n$/

/** A witness, which cosigns a checkpoint that follows from all its earlier ones (C2SP tlog-witness). */
export const witnessAnchor = (prefix: string, key: VerifierKey, post: PostToAnchor): CheckpointAnchor => ({
  name: `witness:${prefix}`,
  keep: async (checkpoint, signal) => {
    const ask = async (has: number) =>
      post(
        `${prefix.replace(/\/+$/, '')}/add-checkpoint`,
        'text/plain; charset=utf-8',
        await requestOf(checkpoint, has),
        signal,
      )
    let has = Math.min(checkpoint.has, checkpoint.size)
    let answer = await ask(has)
    if (answer.status === 409) {
      const [, said] = SIZE.exec(answer.body.toString()) ?? []
      const cosigned = said === undefined ? has : Number(said)
      if (cosigned > checkpoint.size)
        throw new RollbackError(`it has cosigned ${cosigned} rows, and this log has ${checkpoint.size}`)
      if (cosigned !== has) answer = await ask(cosigned)
      has = cosigned
    }
    // It need not say more, and it refuses a log that has other rows than it has cosigned.
    if (answer.status === 422 && has > 0)
      throw new RollbackError(
        `it does not find the ${has} rows that it has cosigned in this log: it answered 422`,
      )
    if (answer.status !== 200) throw new Error(`it answered ${answer.status}: ${wordsOf(answer.body)}`)
    return cosignatureIn(answer.body.toString(), checkpoint.text, key)
  },
})

async function requestOf({ note, consistency, size }: PendingCheckpoint, has: number): Promise<string> {
  const proof = has === 0 || has === size ? [] : await consistency(has)
  return [`old ${has}`, ...proof.map((hash) => hash.toString('base64')), '', note].join('\n')
}

/** The line of the answer that the witness's key has signed. Throws if there is none. */
function cosignatureIn(body: string, text: string, key: VerifierKey): string {
  for (const line of body.split('\n').filter((each) => each !== '')) {
    try {
      const { name, id } = signatureIn(line)
      if (
        name === key.name &&
        id === key.id &&
        verifyNoteSignature(parseNote(noteOf(text, [line])), key).good
      )
        return line
    } catch (error) {
      if (!(error instanceof MalformedNote)) throw error
    }
  }
  throw new Error(`it has answered without a cosignature by ${key.name}`)
}

/** The beginning of a stranger's text, without characters that a terminal would obey. */
const wordsOf = (body: Buffer): string =>
  body
    .toString()
    .slice(0, 200)
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .trim()
