import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { LINGER_LIMITS, LingeringConnections, type LingerLimits } from '../../../proxy/tls/lingering.ts'

/** Connections that a server has answered with one word, and that linger. */
async function answered(t: Test, limits: Partial<LingerLimits> = {}) {
  const lingering = new LingeringConnections({ ...LINGER_LIMITS, ...limits })
  const addresses: string[] = []
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.write('no', () => lingering.add(socket, addresses.shift() ?? ''))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const open = async (address: string): Promise<Socket> => {
    addresses.push(address)
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    // A reset is one of the ways in which it ends.
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
    await once(socket, 'data')
    return socket
  }
  t.teardown(() => {
    lingering.endAll()
    server.close()
  })
  return { lingering, open }
}

const closed = (socket: Socket): Promise<void> =>
  new Promise((resolve) => socket.once('close', () => resolve()))

/** Writes for as long as the other side reads, and returns the bytes that were written then. */
async function writeOn(socket: Socket, piece: Buffer): Promise<number> {
  const goOn = (error?: Error | null): void => {
    if (!error) socket.write(piece, (failed) => void setImmediate(goOn, failed))
  }
  goOn()
  await closed(socket)
  return socket.bytesWritten
}

const PIECE = Buffer.alloc(65_536)

await t.test('who goes on for ever is cut when the time is over', async (t) => {
  const { open } = await answered(t, { lingerMs: 300, maxBytes: Number.POSITIVE_INFINITY })
  const socket = await open('a')
  const bytes = await writeOn(socket, PIECE)
  t.ok(bytes > 1_000_000, 'and read until then')
})

await t.test('who sends more than any body is cut at that', async (t) => {
  const { open } = await answered(t, { maxBytes: 2_000_000 })
  const bytes = await writeOn(await open('a'), PIECE)
  t.ok(bytes > 2_000_000 && bytes < 30_000_000, String(bytes))
})

await t.test('who falls silent reads the end, and then is cut, whatever drips', async (t) => {
  const { open } = await answered(t)
  const socket = await open('a')
  const drip = setInterval(() => socket.write('x'), 20)
  await once(socket, 'end')
  t.notOk(socket.destroyed)
  await closed(socket)
  clearInterval(drip)
})

await t.test('who hangs up is forgotten', async (t) => {
  const { lingering, open } = await answered(t)
  const socket = await open('a')
  t.equal(lingering.size, 1)
  socket.end('rest')
  await closed(socket)
  t.equal(lingering.size, 0)
})

await t.test('if too many linger, the oldest of the address with the most ends', async (t) => {
  const { lingering, open } = await answered(t, { maxConnections: 4 })
  const one = await open('one')
  const [first, second] = [await open('many'), await open('many')]
  await open('many')
  await open('another')
  await writeOn(first, Buffer.from('x'))
  t.equal(lingering.size, 4)
  await open('another')
  await writeOn(second, Buffer.from('x'))
  one.write('x')
  t.equal(lingering.size, 4)
})
