import {
  Malformed,
  noteOf,
  parseNote,
  signatureIn,
  signedBy,
  type VerifierKey,
} from '../../../db/audit/tree/note.ts'
import { type Anchor, Rollback, type ToAnchor } from './anchor.ts'
import type { PostTo } from './web.ts'

/** What an answer of 409 says by its size (C2SP tlog-witness). */
const SIZE = /^(0|[1-9][0-9]{0,15})\n$/

/** A witness, which cosigns what follows from all that it has cosigned before (C2SP tlog-witness). */
export const witnessAnchor = (prefix: string, key: VerifierKey, post: PostTo): Anchor => ({
  name: `witness:${prefix}`,
  keep: async (checkpoint, signal) => {
    const ask = async (has: number) =>
      post(
        `${prefix.replace(/\/$/, '')}/add-checkpoint`,
        'text/plain; charset=utf-8',
        await requestOf(checkpoint, has),
        signal,
      )
    let answer = await ask(Math.min(checkpoint.has, checkpoint.size))
    if (answer.status === 409) {
      const [, said = ''] = SIZE.exec(answer.body.toString()) ?? []
      const has = said === '' ? Number.NaN : Number(said)
      if (has > checkpoint.size)
        throw new Rollback(`it has cosigned ${has} rows, and this log has ${checkpoint.size}`)
      if (has >= 0 && has !== checkpoint.has) answer = await ask(has)
    }
    if (answer.status !== 200) throw new Error(`it answered ${answer.status}: ${wordsOf(answer.body)}`)
    return cosignatureIn(answer.body.toString(), checkpoint.text, key)
  },
})

async function requestOf({ note, consistency, size }: ToAnchor, has: number): Promise<string> {
  const proof = has === 0 || has === size ? [] : await consistency(has)
  return [`old ${has}`, ...proof.map((hash) => hash.toString('base64')), '', note].join('\n')
}

/** The line of the answer that the witness's key has signed. Throws where there is none. */
function cosignatureIn(body: string, text: string, key: VerifierKey): string {
  for (const line of body.split('\n').filter((each) => each !== '')) {
    try {
      const { name, id } = signatureIn(line)
      if (name === key.name && id === key.id && signedBy(parseNote(noteOf(text, [line])), key).good)
        return line
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
    }
  }
  throw new Error(`it has answered without a cosignature by ${key.name}`)
}

/** The beginning of what a stranger says, without what a terminal would obey. */
const wordsOf = (body: Buffer): string =>
  body
    .toString()
    .slice(0, 200)
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .trim()
