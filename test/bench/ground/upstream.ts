// The provider and the MCP servers behind everything that is measured: fixed answers over a raw socket, as
// cheap as Node can make them.
import { createServer, type Socket } from 'node:net'
import { BURST_ANSWER, JSON_ANSWER, KIND_OFFSET, PACE_MS, PACED_ANSWER, PATH } from '../load/messages.ts'
import { mcpAnswer, mcpEraOf } from './mcp-server.ts'
import { sayReady } from './say-ready.ts'

const [BURST, PACED] = ['b', 'p'].map((letter) => letter.charCodeAt(0))

const server = createServer({ noDelay: true }, (socket) => {
  let rest: Buffer | null = null
  socket.on('error', () => socket.destroy())
  socket.on('data', (piece: Buffer) => {
    let bytes = rest ? Buffer.concat([rest, piece]) : piece
    rest = null
    while (bytes.length > 0) {
      const used = serve(bytes, socket)
      if (used === 0) {
        rest = bytes
        return
      }
      bytes = bytes.subarray(used)
    }
  })
})
sayReady(server)
// Whoever asks is told the chat calls so far.
let calls = 0
process.on('message', () => process.send?.(calls))

/**
 * Answers the request that starts here, once all of it has come. Returns its bytes; 0 where more are needed.
 */
function serve(bytes: Buffer, socket: Socket): number {
  const end = bytes.indexOf('\r\n\r\n')
  if (end < 0) return 0
  const head = bytes.toString('latin1', 0, end)
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
  const body = end + 4
  if (bytes.length < body + length) return 0
  if (head.startsWith(`POST ${PATH} `)) calls += 1
  const era = mcpEraOf(head)
  if (era) socket.write(mcpAnswer(era, bytes.toString('utf8', body, body + length)), 'latin1')
  else answer(bytes[body + KIND_OFFSET], socket)
  return body + length
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
