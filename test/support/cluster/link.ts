import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Scope } from './scope.ts'

export type Direction = 'up' | 'down'

/**
 * Told of each piece that passes on a connection; says how much of it passes before both ends are reset, or null for
 * all of it and no reset.
 */
export type Rule = (direction: Direction, piece: Buffer, connection: object) => number | null

/** A TCP proxy between a gateway and its database that can be told to fail. */
export interface Link {
  readonly port: number
  /** The Unix socket of the server that connections to come go to. */
  target: string
  /** Looks at each piece that passes, towards the server (`up`) and from it (`down`). */
  rule: Rule | null
  /** The time that each piece is kept, in each direction. ms. */
  delayMs: number
  /** False: connections to come are refused by a reset. */
  open: boolean
  /** The connections that were ever made. */
  readonly made: number
  /** Ends every connection: by FIN, or by RST. */
  readonly cut: (how: 'end' | 'reset') => void
  /** Half-open: nothing passes any more, no end either, and connections to come are taken and get no answer. */
  readonly hold: () => void
  /** What was held passes on. */
  readonly release: () => void
}

/** Puts a link in front of a Unix socket, on a port of its own. It ends with the scope. */
export async function linkTo(scope: Scope, target: string): Promise<Link> {
  endAtOnce()
  const pairs = new Set<Pair>()
  const gate = new Gate()
  const server = createServer({ allowHalfOpen: true }, (client) => {
    link.made += 1
    // Whoever hangs up before its answer is no fault here.
    client.on('error', () => {})
    if (!link.open) return void client.resetAndDestroy()
    const pair = new Pair(client, connect({ path: link.target, allowHalfOpen: true }), link, gate)
    pairs.add(pair)
    void pair.over.then(() => pairs.delete(pair))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  const link: Link & { made: number } = {
    port: (server.address() as AddressInfo).port,
    target,
    rule: null,
    delayMs: 0,
    open: true,
    made: 0,
    cut: (how) => {
      for (const pair of pairs) pair.end(how)
    },
    hold: () => gate.shut(),
    release: () => gate.lift(),
  }
  scope.teardown(() => {
    gate.lift()
    link.cut('reset')
    server.close()
  })
  return link
}

let ends = false

/**
 * Once nothing is left to do, ends the process without closing what it had. Of a connection that was reset in the middle Node may
 * count a request for ever, and goes round in its own end waiting for that (`Environment::CleanupHandles`).
 */
function endAtOnce(): void {
  if (ends) return
  ends = true
  // Whatever else waits for this moment has its turn first.
  process.once('beforeExit', () => setImmediate(() => process.once('beforeExit', () => process.exit())))
}

/** Lets everybody through, or nobody. */
class Gate {
  #way: PromiseWithResolvers<void> | null = null

  shut(): void {
    this.#way ??= Promise.withResolvers<void>()
  }

  lift(): void {
    this.#way?.resolve()
    this.#way = null
  }

  /** Not even a turn of the loop where it is open. */
  get closed(): Promise<void> | null {
    return this.#way?.promise ?? null
  }
}

/** One connection of a gateway, and the one to the server that belongs to it. */
class Pair {
  readonly over: Promise<unknown>
  readonly #client: Socket
  readonly #server: Socket

  constructor(client: Socket, server: Socket, link: Pick<Link, 'rule' | 'delayMs'>, gate: Gate) {
    this.#client = client
    this.#server = server
    server.on('error', () => {})
    const carry = async (direction: Direction, from: Socket, to: Socket): Promise<void> => {
      for await (const piece of from as AsyncIterable<Buffer>) {
        if (gate.closed) await gate.closed
        if (link.delayMs > 0) await sleep(link.delayMs)
        const passes = link.rule?.(direction, piece, this) ?? null
        if (passes !== null) {
          if (passes > 0) await written(to, piece.subarray(0, passes))
          return this.end('reset')
        }
        await written(to, piece)
      }
      if (gate.closed) await gate.closed
      to.end()
    }
    this.over = Promise.all([carry('up', client, server), carry('down', server, client)]).catch(() =>
      this.end('reset'),
    )
  }

  end(how: 'end' | 'reset'): void {
    for (const socket of [this.#client, this.#server]) {
      if (how === 'end') socket.end().destroySoon()
      else if (socket === this.#client) socket.resetAndDestroy()
      else socket.destroy()
    }
  }
}

const written = (to: Socket, piece: Buffer): Promise<void> =>
  new Promise((resolve, reject) => to.write(piece, (error) => (error ? reject(error) : resolve())))

/**
 * Resets connections in the middle of a commit: when the server has got `passed` of it, and before its answer.
 * `when` is asked at each commit.
 */
export function atCommit(passed: 'nothing' | 'half' | 'all', when: () => boolean): Rule {
  const sent = new WeakSet<object>()
  return (direction, piece, connection) => {
    if (direction === 'down') return sent.has(connection) ? 0 : null
    if (!isCommit(piece) || !when()) return null
    if (passed === 'nothing') return 0
    if (passed === 'half') return Math.ceil(piece.length / 2)
    sent.add(connection)
    return null
  }
}

const isCommit = (piece: Buffer): boolean => /\bcommit\b/i.test(piece.toString('latin1'))
