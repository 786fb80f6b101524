// The provider and the MCP servers behind everything that is measured: fixed answers over a raw socket, as
// cheap as Node can make them.
import { createServer, type Socket } from 'node:net'
import { BURST_ANSWER, JSON_ANSWER, KIND_OFFSET, PACE_MS, PACED_ANSWER, PATH } from '../load/messages.ts'
import { MESSAGES_ANSWER, MESSAGES_PATH } from '../load/wire-calls.ts'
import { sendEvents } from '../streams/events.ts'
import { mcpAnswer, mcpEraOf } from './mcp-server.ts'
import { sayReady } from './say-ready.ts'

const [BURST, PACED, STREAM] = ['b', 'p', 's'].map((letter) => letter.charCodeAt(0))

const server = createServer({ noDelay: true }, (socket) => {
  let pieces: Buffer[] = []
  let came = 0
  /** The length of the request that comes, as far as it is known. */
  let wanted = 1
  socket.on('error', () => socket.destroy())
  socket.on('data', (piece: Buffer) => {
    pieces.push(piece)
    came += piece.length
    // A long body is put together once.
    if (came < wanted) return
    let bytes = pieces.length === 1 ? piece : Buffer.concat(pieces)
    while (bytes.length > 0) {
      wanted = lengthOf(bytes)
      if (wanted > bytes.length) break
      serve(bytes.subarray(0, wanted), socket)
      bytes = bytes.subarray(wanted)
    }
    pieces = bytes.length > 0 ? [bytes] : []
    came = bytes.length
    if (came === 0) wanted = 1
  })
})
sayReady(server)
// Whoever asks is told the chat calls so far.
let calls = 0
process.on('message', () => process.send?.(calls))

/** Returns the length of the request that starts here; one more than came if its head is not whole. */
function lengthOf(bytes: Buffer): number {
  const end = bytes.indexOf(HEAD_END)
  if (end < 0) return bytes.length + 1
  const head = bytes.toString('latin1', 0, end)
  return end + HEAD_END.length + Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
}

const HEAD_END = '\r\n\r\n'

function serve(request: Buffer, socket: Socket): void {
  const end = request.indexOf(HEAD_END)
  const head = request.toString('latin1', 0, end)
  const body = end + HEAD_END.length
  if (head.startsWith(`POST ${PATH} `)) calls += 1
  const era = mcpEraOf(head)
  if (head.startsWith(`POST ${MESSAGES_PATH} `)) socket.write(MESSAGES_ANSWER)
  else if (era) socket.write(mcpAnswer(era, request.toString('utf8', body)), 'latin1')
  else if (request[body + KIND_OFFSET] === STREAM)
    sendEvents(socket, request.toString('latin1', body + KIND_OFFSET, body + KIND_OFFSET + 16))
  else answer(request[body + KIND_OFFSET], socket)
}

function answer(kind: number | undefined, socket: Socket): void {
  if (kind === BURST) socket.write(BURST_ANSWER)
  else if (kind === PACED) pace(socket, 0)
  else socket.write(JSON_ANSWER)
}

function pace(socket: Socket, index: number): void {
  const piece = PACED_ANSWER[index]
  if (!piece || socket.destroyed) return
  socket.write(piece)
  setTimeout(pace, PACE_MS, socket, index + 1)
}
