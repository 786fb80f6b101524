import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/** The address that a relay comes from, unless it is told another one. All of 127.0.0.0/8 is this machine. */
export const BALANCER = '127.0.0.2'

export interface Relayed {
  /** The bytes in front of the caller's. */
  readonly header: Buffer | string
  /** How they go on: with the caller's first bytes in one piece, before them, or byte by byte. Default: joined. */
  readonly how?: 'joined' | 'apart' | 'bytes'
  readonly from?: string
}

/**
 * A balancer in front of a gateway that speaks first, and passes on the rest as it comes. Returns its URL.
 */
export async function relay(
  t: Test,
  url: string,
  { header, how = 'joined', from = BALANCER }: Relayed,
): Promise<string> {
  const sockets = new Set<Socket>()
  const server = createServer({ noDelay: true }, (client) => {
    const target = { host: '127.0.0.1', port: Number(new URL(url).port), localAddress: from, noDelay: true }
    const gateway = connect(target)
    for (const socket of [client, gateway]) sockets.add(socket.on('error', () => {}))
    gateway.pipe(client)
    client.on('close', () => gateway.destroy())
    gateway.on('close', () => client.destroy())
    void passOn(client, gateway, Buffer.from(header), how)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  // Proven: it listens on a port.
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function passOn(client: Socket, gateway: Socket, header: Buffer, how: Relayed['how']): Promise<void> {
  if (how === 'apart') gateway.write(header)
  const [first] = (await once(client, 'data')) as [Buffer]
  client.pause()
  if (how === 'apart') gateway.write(first)
  else if (how === 'joined') gateway.write(Buffer.concat([header, first]))
  else await oneByOne(Buffer.concat([header, first]), gateway)
  client.pipe(gateway)
}

/** Writes each byte in a packet of its own, as far as that is anybody's to say. */
export async function oneByOne(bytes: Buffer, to: Socket): Promise<void> {
  for (const byte of bytes) {
    to.write(Buffer.from([byte]))
    await new Promise(setImmediate)
  }
}
