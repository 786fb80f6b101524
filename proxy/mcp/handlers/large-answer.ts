import type { Hash } from 'node:crypto'
import { eventLoopTurn, runInSlices, type WorkSteps } from '../../../plugins/turns.ts'
import type { JsonText, MemberEdits } from '../protocol/json-text.ts'

/** The amount of a large answer that is written in one turn of the loop. Bytes. */
const PIECE = 64 * 1024
const LF = 0x0a
const CR = 0x0d

/** Writes an object with these edits, as bytes: text of megabytes is slow to make and to send. */
export function editedBytes({ bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>, edits: MemberEdits): Buffer {
  const pieces: Buffer[] = []
  const add = (name: string, value: Buffer): void => {
    pieces.push(Buffer.from(`${pieces.length === 0 ? '{' : ','}${JSON.stringify(name)}:`), value)
  }
  for (const [name, { start, end }] of spans) {
    const edit = Object.hasOwn(edits, name) ? edits[name] : undefined
    if (edit === null) continue
    add(name, edit === undefined ? bytes.subarray(start, end) : Buffer.from(edit))
  }
  for (const [name, text] of Object.entries(edits)) {
    if (text !== null && !spans.has(name)) add(name, Buffer.from(text))
  }
  pieces.push(Buffer.from(pieces.length === 0 ? '{}' : '}'))
  return Buffer.concat(pieces)
}

export const joinedBytes = (before: string, items: readonly string[], after: string): Promise<Buffer> =>
  runInSlices(joining(before, items, after))

function* joining(before: string, items: readonly string[], after: string): WorkSteps<Buffer> {
  const pieces: Buffer[] = []
  let text = before
  for (const [index, item] of items.entries()) {
    text += index === 0 ? item : `,${item}`
    if (text.length < PIECE) continue
    pieces.push(Buffer.from(text))
    text = ''
    yield
  }
  return Buffer.concat([...pieces, Buffer.from(text + after)])
}

/**
 * Digests many bytes, in lower-case hex, in turns with everybody else. `hash`: it may have been given a salt.
 */
export const digestInTurns = (hash: Hash, bytes: Buffer): Promise<string> => runInSlices(hashing(hash, bytes))

function* hashing(hash: Hash, bytes: Buffer): WorkSteps<string> {
  for (let from = 0; from < bytes.length; from += PIECE) {
    hash.update(bytes.subarray(from, from + PIECE))
    yield
  }
  return hash.digest('hex')
}

/**
 * Writes a message as a server-sent event, but for the blank line that ends it, in turns with everybody else.
 */
export async function* eventPieces(message: Buffer): AsyncGenerator<Buffer> {
  yield Buffer.from('event: message\n')
  const oneLine = !message.includes(LF) && !message.includes(CR)
  for (let from = 0; from < message.length; from += PIECE) {
    const piece = message.subarray(from, from + PIECE)
    if (oneLine) yield from === 0 ? Buffer.concat([Buffer.from('data: '), piece]) : piece
    else yield lines(piece, message[from - 1])
    await eventLoopTurn()
  }
}

/** Begins each line of a piece as one of data. `before`: the byte before it, if there is one. */
function lines(piece: Buffer, before: number | undefined): Buffer {
  // One byte for one character, whatever it is.
  const text = piece.toString('latin1')
  const rest = before === CR && text.startsWith('\n') ? text.slice(1) : text
  const begun = before === undefined ? 'data: ' : ''
  return Buffer.from(begun + rest.replace(/\r\n|\r|\n/g, '\ndata: '), 'latin1')
}
