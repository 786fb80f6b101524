import { connect, type TLSSocket } from 'node:tls'
import { ITEMS, type Item } from './corpus.ts'

/*
 * A process that sends one item of the corpus at a time, so that the loop of the process that takes it can be
 * measured by itself.
 */

/** What the sender is told first. */
export interface Ground {
  readonly port: number
  readonly secret: string
  /** PEM texts of the certificates that items are sent with, by name. */
  readonly identities: Readonly<Record<string, { readonly cert: string; readonly key: string }>>
  /** The ids of the hostile MCP servers, by name. */
  readonly resources: Readonly<Record<string, string>>
}

/** An answer to an item: the first bytes of it, and the length of all. */
export interface Sent {
  readonly head: string
  readonly bytes: number
}

const PIECES = 2048
/** After so long, or so much of an answer, an item is over. ms, bytes. */
const [PATIENCE_MS, ENOUGH] = [5_000, 16 * 1024 * 1024]
/** `{h-schema}` in a path stands for the id of that server. */
const PLACE = /\{(h-[a-z0-9-]+)\}/

let ground: Ground | null = null

process.on('disconnect', () => process.exit(0))
process.on(
  'message',
  (told: { readonly ground?: Ground; readonly item?: string; readonly again?: number }) => {
    if (told.ground) ground = told.ground
    const item = ITEMS.find(({ name }) => name === told.item)
    if (item && ground) void sendItem(item, told.again ?? 0, ground).then((sent) => process.send?.(sent))
  },
)

async function sendItem(
  item: Item,
  again: number,
  { port, secret, identities, resources }: Ground,
): Promise<Sent> {
  const who = item.chain?.() ?? identities[item.who ?? 'bot'] ?? {}
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...who })
  const sent = answerOf(socket)
  await new Promise((resolve) => socket.once('secureConnect', resolve).once('close', resolve))
  const { head, body } = item.request(secret, again)
  const named = head.replace(PLACE, (_, name: string) => resources[name] ?? '')
  if (item.manner === undefined) await write(socket, Buffer.concat([Buffer.from(named), Buffer.from(body)]))
  else await drip(socket, item.manner, named, body.length)
  return sent
}

async function drip(socket: TLSSocket, manner: 'chunks' | 'records', head: string, length: number) {
  socket.setNoDelay(true)
  await write(socket, head)
  for (let left = length; left > 0 && !socket.destroyed; left -= PIECES) {
    const count = Math.min(PIECES, left)
    if (manner === 'chunks') await write(socket, '1\r\n \r\n'.repeat(count))
    // Each write is a record.
    else for (let i = 0; i < count && !socket.destroyed; i += 1) await write(socket, ' ')
  }
  if (manner === 'chunks') await write(socket, '0\r\n\r\n')
}

/** Writes what the other end may not want: it hangs up then. */
function write(socket: TLSSocket, bytes: Buffer | string): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off('close', done)
      resolve()
    }
    socket.once('close', done)
    if (socket.destroyed) done()
    else socket.write(bytes, done)
  })
}

function answerOf(socket: TLSSocket): Promise<Sent> {
  let head = ''
  let bytes = 0
  const late = setTimeout(() => socket.destroy(), PATIENCE_MS)
  socket.on('error', () => {})
  socket.on('data', (piece: Buffer) => {
    if (head.length < 2_000) head += piece.toString('latin1', 0, 2_000)
    bytes += piece.length
    if (bytes > ENOUGH) socket.destroy()
  })
  return new Promise((resolve) => {
    socket.once('close', () => {
      clearTimeout(late)
      resolve({ head, bytes })
    })
  })
}
