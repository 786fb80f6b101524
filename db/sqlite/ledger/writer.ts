// The thread that writes the ledger: an fsync takes its time, and the event loop has none
// (docs/threats.md#t10).
import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from '../../error-message.ts'
import type { FromWriter, ToWriter, WriterOptions } from './messages.ts'
import { packResults, unpackBatch } from './packing.ts'
import { openStore, type Store } from './store.ts'

const port = parentPort
if (!port) throw new Error('db/sqlite/ledger/writer.ts runs as a worker thread only')

// Proven by db/sqlite/ledger/thread.ts, which starts this thread and nothing else.
const options = workerData as WriterOptions
const send = (message: FromWriter): void => port.postMessage(message)

try {
  serve(openStore(options))
} catch (error) {
  send({ kind: 'refused', message: messageOf(error) })
}

function serve(store: Store): void {
  let poisoned = false
  const poison = (error: unknown): void => {
    poisoned = true
    send({ kind: 'poisoned', message: messageOf(error) })
  }
  port?.on('message', (message: ToWriter) => {
    // After a fault nothing touches the file any more, not even the close that would copy the log into it.
    if (poisoned) return
    try {
      answer(store, message)
    } catch (error) {
      if (store.isPassing(error)) send({ kind: 'failed', message: messageOf(error) })
      else poison(error)
    }
  })
  send({ kind: 'ready', head: store.head })
}

function answer(store: Store, message: ToWriter): void {
  switch (message.kind) {
    case 'write':
      send({ kind: 'written', results: packResults(store.write(unpackBatch(message.batch))) })
      store.checkpoint()
      break
    case 'open-decisions':
      send({ kind: 'open-decisions', decisions: store.openDecisions() })
      break
    case 'close':
      store.close()
      port?.close()
  }
}
