import type { ClientRequest } from 'node:http'
import { turn } from '../../../plugins/turns.ts'

/** Encrypted at once. Bytes. */
const PIECE = 262_144
/** Encrypted in one turn of the loop. Bytes. */
const IN_A_TURN = 2_097_152

/**
 * Writes a long body and ends the request. TLS encrypts at once whatever it is given, so it is given pieces
 * (docs/threats.md#a5). Stops where the request is destroyed.
 */
export function writeLong(body: readonly Buffer[], request: ClientRequest, isEncrypted: boolean): void {
  if (isEncrypted) void writeInPieces(body, request)
  else {
    for (const part of body) request.write(part)
    request.end()
  }
}

/**
 * The next piece as soon as the last is taken, not in a later turn of the loop: what the other side has said
 * meanwhile would be lost if it has hung up. Never rejects.
 */
async function writeInPieces(body: readonly Buffer[], request: ClientRequest): Promise<void> {
  let written = 0
  for (const part of body) {
    for (let at = 0; at < part.length; at += PIECE) {
      if (written >= IN_A_TURN) {
        written = 0
        await turn()
      }
      if (request.destroyed) return
      written += PIECE
      if (!request.write(part.subarray(at, at + PIECE))) await drained(request)
    }
  }
  request.end()
}

/** Resolves when more may be written, or never again. */
function drained(request: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      request.off('drain', done).off('close', done)
      resolve()
    }
    request.on('drain', done).on('close', done)
  })
}
