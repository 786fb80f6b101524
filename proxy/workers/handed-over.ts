import type { ChildProcess } from 'node:child_process'

/** What node:cluster says to a worker with a connection, as far as it is read here. */
interface NewConnection {
  readonly cmd?: unknown
  readonly act?: unknown
  readonly seq?: unknown
  readonly ack?: unknown
}

interface Connection {
  readonly close: () => void
}

/**
 * Keeps the connections that are on their way to a worker until it has taken them. node:cluster forgets those of one
 * that dies: nobody would ever serve or close them, and their clients would wait. Returns the function for its death,
 * which gives them to `others`, or closes them where there are none.
 *
 * This rests on messages inside of Node (24: lib/internal/cluster): were they to change, the connections would be
 * forgotten again, and test/proxy/workers/deaths.test.ts would wait.
 */
export function keepHandedOver(child: ChildProcess): (others: boolean) => void {
  const onTheWay = new Map<unknown, Connection>()
  const send = child.send.bind(child) as (...values: unknown[]) => boolean
  child.send = (...values: unknown[]): boolean => {
    const [message, handle] = values as [NewConnection, Connection | undefined]
    if (message.cmd === 'NODE_CLUSTER' && message.act === 'newconn' && handle)
      onTheWay.set(message.seq, handle)
    return send(...values)
  }
  child.on('internalMessage', ({ ack }: NewConnection) => void onTheWay.delete(ack))
  return (others) => {
    for (const [ack, connection] of onTheWay) {
      // As a worker says it that does not listen any more.
      if (others) child.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack, accepted: false })
      else connection.close()
    }
    onTheWay.clear()
  }
}
