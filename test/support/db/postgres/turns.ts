import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** A way to a server on which is counted what clients ask, and how often they wait for an answer. */
export interface CountedWay {
  readonly url: string
  /** The statements of all connections so far, each as its text or, if it was prepared, as the text it was prepared by. */
  readonly statements: () => readonly string[]
  /** How often so far something was sent behind an answer: the round trips of all connections. */
  readonly turns: () => number
}

/** Turns of the loop without a word from the client, after which it waits for an answer. */
const SILENT_TURNS = 3

/** Makes a way to the server of a URL of test/support/db/postgres/cluster.ts. Gone with its test. */
export async function countedWay(t: Pick<Test, 'teardown'>, url: string): Promise<CountedWay> {
  const directory = await mkdtemp(join(tmpdir(), 'sallyport-way-'))
  const target = new URL(url).searchParams.get('host') ?? ''
  const file = '.s.PGSQL.5432'
  const sockets = new Set<Socket>()
  const statements: string[] = []
  let turns = 0
  const server = createServer((client) => {
    const upstream = connect(join(target, file))
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {}).on('close', () => (socket === client ? upstream : client).destroy())
    }
    let [answered, silent] = [true, 0]
    const hear = statementReader((text) => statements.push(text))
    client.on('data', (bytes: Buffer) => {
      hear(bytes)
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
  return { url: through.href, turns: () => turns, statements: () => statements }
}

/** The messages of a client by which it has something done (PostgreSQL's protocol, version 3). */
const [QUERY, PARSE, BIND, EXECUTE] = ['Q', 'P', 'B', 'E']

/** Reads what one client sends, in whatever pieces, and tells each statement that it has done. */
function statementReader(tell: (text: string) => void): (bytes: Buffer) => void {
  const prepared = new Map<string, string>()
  let [rest, bound, isOpen] = [Buffer.alloc(0), '', false]
  return (bytes) => {
    rest = Buffer.concat([rest, bytes])
    for (;;) {
      // The first message has no letter.
      const head = isOpen ? 1 : 0
      if (rest.length < head + 4) return
      const end = head + rest.readInt32BE(head)
      if (rest.length < end) return
      const letter = isOpen ? String.fromCharCode(rest[0] ?? 0) : ''
      const [first = '', second = ''] = rest.toString('utf8', head + 4, end).split('\0')
      rest = rest.subarray(end)
      isOpen = true
      if (letter === QUERY) for (const text of first.split(/;\s*(?=\S)/)) tell(text)
      else if (letter === PARSE) prepared.set(first, second)
      else if (letter === BIND) bound = prepared.get(second) ?? ''
      else if (letter === EXECUTE) tell(bound)
    }
  }
}
