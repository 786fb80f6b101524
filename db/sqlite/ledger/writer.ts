// The thread that writes the ledger: an fsync takes its time, and the event loop has none
// (docs/threats.md#t10).
import type { FromWriter, ToWriter } from './messages.ts'
import { packResults, unpackBatch } from './packing.ts'
import { closeStore, serveLedgerThread } from './serve-thread.ts'

serveLedgerThread<ToWriter, FromWriter>((store, message, send) => {
  switch (message.kind) {
    case 'write':
      send({ kind: 'written', results: packResults(store.write(unpackBatch(message.batch))) })
      store.checkpoint()
      break
    case 'open-decisions':
      send({ kind: 'open-decisions', decisions: store.decisionsAt(store.openDecisions()) })
      break
    case 'close':
      closeStore(store)
  }
})
