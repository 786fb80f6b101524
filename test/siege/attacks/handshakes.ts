import { createHash } from 'node:crypto'
import { costlyChain } from './costly-chain.ts'
import {
  firstAnswer,
  HERD_MS,
  lanes,
  linger,
  ONE_ADDRESS,
  openTcp,
  openTls,
  requestOf,
  someAddress,
  write,
} from './sockets.ts'
import type { Attack, Siege } from './target.ts'

/** A1: handshakes whose client certificates cost half a second to verify, half from one address, half from forty. */
export const chains: Attack = async (siege) => {
  const chain = costlyChain()
  await lanes(siege, 16, 500, async (lane) => {
    const from = lane < 8 ? ONE_ADDRESS : someAddress(siege.random)
    await linger(await openTls(siege, chain, from), 250)
  })
}

/** Handshakes of which only a part comes. */
export const halves: Attack = (siege) =>
  lanes(siege, 200, 4_000, async () => {
    const socket = await openTcp(siege, someAddress(siege.random))
    const hello = Buffer.concat([Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]), noise(siege.random())])
    await write(socket, hello.subarray(0, Math.floor(siege.random() * hello.length)))
    await linger(socket, 7_000)
  })

/** Connections that are opened and closed, in the middle of the handshake or after it, or left idle. */
export const connections: Attack = (siege) =>
  lanes(siege, 24, 150, async (lane) => {
    const from = lane < 12 ? ONE_ADDRESS : someAddress(siege.random)
    if (lane % 3 === 0) return void (await openTcp(siege, from)).destroy()
    const socket = await openTls(siege, {}, from)
    if (siege.random() < 0.05) await linger(socket, 10_000)
    socket.destroy()
  })

const HERDS = [2_000, 4_000]

/**
 * No attack, but the clients of an outage that has ended: 2,000 and 4,000 of them connect in one moment, from one address and
 * from forty. Rejects if the gateway hangs up on any of them. Who has no answer after 30 s comes again.
 */
export const herd: Attack = async (siege) => {
  for (let i = 0; !siege.signal.aborted; i += 1) {
    const size = HERDS[i % HERDS.length] ?? 0
    const from = i % 4 < 2 ? () => ONE_ADDRESS : () => someAddress(siege.random)
    siege.tried()
    const cut = await Promise.all(Array.from({ length: size }, () => isCut(siege, from())))
    const count = cut.filter(Boolean).length
    if (count > 0 && !siege.signal.aborted) throw new Error(`${count} of ${size} clients were cut`)
  }
}

async function isCut(siege: Siege, from: string): Promise<boolean> {
  const { cert, key } = siege.target.rogue
  const late = performance.now() + HERD_MS
  try {
    const socket = await openTls(siege, { cert, key }, from, HERD_MS)
    const answer = firstAnswer(socket, HERD_MS)
    await write(socket, requestOf('GET', '/health', []))
    const text = await answer
    socket.destroy()
    return text === '' && performance.now() < late
  } catch {
    return performance.now() < late
  }
}

/** No TLS at all. */
export const noTls: Attack = (siege) =>
  lanes(siege, 8, 40, async () => {
    const socket = await openTcp(siege, someAddress(siege.random))
    await write(
      socket,
      siege.random() < 0.5 ? 'GET / HTTP/1.1\r\nhost: localhost\r\n\r\n' : noise(siege.random()),
    )
    await linger(socket, 1_000)
  })

const noise = (seed: number): Buffer =>
  Buffer.concat(Array.from({ length: 16 }, (_, i) => createHash('sha256').update(`${seed} ${i}`).digest()))
