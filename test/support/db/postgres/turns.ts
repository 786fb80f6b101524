import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** A way to a server on which is counted how often a client waits for an answer. */
export interface CountedWay {
  readonly url: string
  /** How often so far something was sent behind an answer: the round trips of all connections. */
  readonly turns: () => number
}

/** Turns of the loop without a word from the client, after which it waits for an answer. */
const SILENT_TURNS = 3

/** Makes a way to the server of a URL of test/support/db/postgres/cluster.ts. Gone with its test. */
export async function countedWay(t: Test, url: string): Promise<CountedWay> {
  const directory = await mkdtemp(join(tmpdir(), 'sallyport-way-'))
  const target = new URL(url).searchParams.get('host') ?? ''
  const file = '.s.PGSQL.5432'
  const sockets = new Set<Socket>()
  let turns = 0
  const server = createServer((client) => {
    const upstream = connect(join(target, file))
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {}).on('close', () => (socket === client ? upstream : client).destroy())
    }
    let [answered, silent] = [true, 0]
    client.on('data', (bytes) => {
      if (answered) turns += 1
      answered = false
      silent = 0
      upstream.write(bytes)
    })
    // Held back until the client has said all: what it sends without waiting is one turn.
    const held: Buffer[] = []
    const release = (): void => {
      silent += 1
      if (silent < SILENT_TURNS) return void setImmediate(release)
      answered = true
      client.write(Buffer.concat(held.splice(0)))
    }
    upstream.on('data', (bytes: Buffer) => {
      silent = 0
      if (held.push(bytes) === 1) setImmediate(release)
    })
  })
  await new Promise<void>((resolve) => server.listen(join(directory, file), resolve))
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
    await rm(directory, { recursive: true, force: true })
  })
  const through = new URL(url)
  through.searchParams.set('host', directory)
  return { url: through.href, turns: () => turns }
}
