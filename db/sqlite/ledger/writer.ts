// The thread that writes the ledger: an fsync takes its time, and the event loop has none
// (docs/threats.md#t10).
import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from '../../support/error-message.ts'
import type { FromWriter, ToWriter, WriterOptions } from './packing.ts'
import { packResults, unpackBatch } from './packing.ts'
import { type LedgerStore, openStore } from './store.ts'

const port = parentPort
if (!port) throw new Error('db/sqlite/ledger/writer.ts runs as a worker thread only')
const send = (message: FromWriter): void => port.postMessage(message)

try {
  // Proven by db/sqlite/ledger/thread.ts, which starts this thread and nothing else.
  serve(openStore(workerData as WriterOptions))
} catch (error) {
  send({ kind: 'refused', message: messageOf(error) })
}

/**
 * Answers in order. A fault that is not passing poisons the thread: nothing touches the file any more, not
 * even a close.
 */
function serve(store: LedgerStore): void {
  let poisoned = false
  port?.on('message', (message: ToWriter) => {
    if (poisoned) return
    try {
      answer(store, message)
    } catch (error) {
      poisoned = !store.isPassing(error)
      send({ kind: poisoned ? 'poisoned' : 'failed', message: messageOf(error) })
    }
  })
  send({ kind: 'ready', head: store.head })
}

let parts: unknown[] = []

function answer(store: LedgerStore, message: ToWriter): void {
  switch (message.kind) {
    case 'part':
      parts.push(...message.values)
      break
    case 'write': {
      const { batch } = message
      const values = parts.length === 0 ? batch.values : [...parts, ...batch.values]
      parts = []
      send({ kind: 'written', results: packResults(store.write(unpackBatch({ ...batch, values }))) })
      store.checkpoint()
      break
    }
    case 'open-decisions':
      send({ kind: 'open-decisions', decisions: store.openDecisions() })
      break
    case 'close':
      store.close()
      // It keeps the thread.
      port?.close()
  }
}
