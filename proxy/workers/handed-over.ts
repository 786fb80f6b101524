import type { ChildProcess } from 'node:child_process'

/** What node:cluster says to a worker with a connection, and the worker's answer, as far as they are read here. */
interface NewConnection {
  readonly cmd?: unknown
  readonly act?: unknown
  readonly seq?: unknown
  readonly ack?: unknown
  readonly accepted?: unknown
}

interface Connection {
  readonly close: () => void
}

interface OnTheWay {
  readonly child: ChildProcess
  readonly connection: Connection
}

/** How long a connection that a stopping worker has not taken may go from one to the next. ms. */
const REFUSED_MS = 500

/**
 * The connections that are on their way to a worker. node:cluster forgets those of one that dies, and those that the
 * last one does not take: nobody would serve or close them, and their clients would wait.
 *
 * This rests on messages inside of Node (24: lib/internal/cluster): were they to change, the connections would be
 * forgotten again, and tests of proxy/workers would wait.
 */
export class HandedOver {
  readonly #onTheWay = new Map<unknown, OnTheWay>()
  #stopping = false

  /** Watches what is sent to a worker, from its start on. */
  watch(child: ChildProcess): void {
    const send = child.send.bind(child) as (...values: unknown[]) => boolean
    child.send = (...values: unknown[]): boolean => {
      const [message, connection] = values as [NewConnection, Connection | undefined]
      if (message.cmd === 'NODE_CLUSTER' && message.act === 'newconn' && connection)
        this.#onTheWay.set(message.seq, { child, connection })
      return send(...values)
    }
    child.on('internalMessage', ({ ack, accepted }: NewConnection) => {
      const connection = this.#onTheWay.get(ack)?.connection
      this.#onTheWay.delete(ack)
      if (connection && this.#stopping && accepted !== true) this.#closeSoon(connection)
    })
  }

  /** Nobody will take what is refused from now on. */
  stop(): void {
    this.#stopping = true
  }

  /** Gives what a worker that has ended did not take to others; closes it where there are none. */
  release(ended: ChildProcess, others: boolean): void {
    for (const [ack, { child, connection }] of this.#onTheWay) {
      if (child !== ended) continue
      // As a worker says it that does not listen any more.
      if (others) child.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack, accepted: false })
      else connection.close()
      this.#onTheWay.delete(ack)
    }
  }

  /** Another worker may have it by then: its copy is its own. One that is still on its way is left alone. */
  #closeSoon(connection: Connection): void {
    setTimeout(() => {
      const moving = [...this.#onTheWay.values()].some((one) => one.connection === connection)
      if (!moving) connection.close()
    }, REFUSED_MS).unref()
  }
}
