import type { Readable, Writable } from 'node:stream'
import { deserialize, serialize } from 'node:v8'

/** What stands before each body: its length, the frame's kind, the number of the question. */
const HEADER = 9

/** The longest body that is read. A batch of 512 units of the longest rows is half of it. */
const LONGEST = 64 * 1_048_576

/** A message between a worker and the process above it. */
export interface Frame {
  readonly kind: number
  /** The number of the question that it asks or answers; 0 where nothing is asked. */
  readonly id: number
  /** Lies in the bytes that were read: copied by whoever keeps it. */
  readonly body: Uint8Array
}

/** Sends one frame. `body` as it is. */
export function sendFrame(to: Writable, kind: number, id: number, body: Uint8Array): void {
  if (to.destroyed) return
  const head = Buffer.allocUnsafe(HEADER)
  head.writeUInt32BE(body.length, 0)
  head.writeUInt8(kind, 4)
  head.writeUInt32BE(id, 5)
  to.cork()
  to.write(head)
  to.write(body)
  to.uncork()
}

/** Sends a value that can be cloned (HTML, structured clone). */
export const sendValue = (to: Writable, kind: number, id: number, value: unknown): void =>
  sendFrame(to, kind, id, serialize(value))

/** Reads the value of a frame. The caller knows by the kind what it is: both ends are this program. */
export const valueIn = <Value>({ body }: Frame): Value => deserialize(body) as Value

/** Hands each whole frame on. A frame that is too long destroys the stream. */
export function readFrames(from: Readable, heard: (frame: Frame) => void): void {
  // Not put together before the longest that is under way is whole: else one of many MiB is copied again and again.
  let chunks: Buffer[] = []
  let size = 0
  let needed = HEADER
  from.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    size += chunk.length
    if (size < needed) return
    let rest = Buffer.concat(chunks, size)
    for (needed = lengthAt(rest); rest.length >= needed; needed = lengthAt(rest)) {
      heard({ kind: rest.readUInt8(4), id: rest.readUInt32BE(5), body: rest.subarray(HEADER, needed) })
      rest = rest.subarray(needed)
    }
    chunks = [rest]
    size = rest.length
    if (needed > HEADER + LONGEST) from.destroy(new Error(`a frame of ${needed} bytes`))
  })
}

/** The length of the frame that begins here, its head included. */
const lengthAt = (bytes: Buffer): number => (bytes.length < HEADER ? HEADER : HEADER + bytes.readUInt32BE(0))
