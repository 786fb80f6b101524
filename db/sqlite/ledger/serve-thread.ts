import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from '../../support/error-message.ts'
import type { LedgerThreadStatus, WriterOptions } from './messages.ts'
import { type LedgerStore, openStore } from './store.ts'

/** Sends a message to whoever started this thread; the lists that are handed over are its own from then on. */
type SendToStarter<From> = (message: From | LedgerThreadStatus, handedOver?: readonly ArrayBuffer[]) => void

/**
 * Opens the store and answers messages in the order of their coming. A fault that is not passing poisons the
 * thread: from then on nothing touches the file any more, not even the close that would copy the log into it.
 */
export function serveLedgerThread<To, From>(
  answer: (store: LedgerStore, message: To, send: SendToStarter<From>) => void,
): void {
  const port = parentPort
  if (!port) throw new Error('the ledger is written by a worker thread only')
  const send: SendToStarter<From> = (message, handedOver = []) => port.postMessage(message, handedOver)
  let poisoned = false

  function serve(store: LedgerStore): void {
    port?.on('message', (message: To) => {
      if (poisoned) return
      try {
        answer(store, message, send)
      } catch (error) {
        poisoned = !store.isPassing(error)
        send({ kind: poisoned ? 'poisoned' : 'failed', message: messageOf(error) })
      }
    })
    send({ kind: 'ready', head: store.head })
  }

  try {
    // Proven by db/sqlite/ledger/thread.ts, which starts these threads and nothing else.
    serve(openStore(workerData as WriterOptions))
  } catch (error) {
    send({ kind: 'refused', message: messageOf(error) })
  }
}

/** Lets go of the file, and of the port that keeps the thread. */
export function closeStore(store: LedgerStore): void {
  store.close()
  parentPort?.close()
}
