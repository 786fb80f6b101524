// The thread that writes the ledger for all workers: what they send while one batch is being written shares the next
// fsync.
import { deserialize, serialize } from 'node:v8'
import { type PackedBatch, packResults, unpackBatch } from '../ledger/packing.ts'
import { closeStore, serveThread } from '../ledger/serve-thread.ts'
import type { Store } from '../ledger/store.ts'
import type { FromShared, Part, ToShared } from './messages.ts'
import { OpenCallsOfAll } from './open-calls.ts'

let open: OpenCallsOfAll | null = null

serveThread<ToShared, FromShared>((store, message, send) => {
  open ??= new OpenCallsOfAll(leftIn(store))
  switch (message.kind) {
    case 'write': {
      const results = write(store, open, message.parts)
      send(
        { kind: 'written', results },
        results.map(({ buffer }) => buffer),
      )
      store.checkpoint()
      break
    }
    case 'unfinished':
      send({ kind: 'unfinished', decisions: store.decisionsAt(open.take(message.owner)) })
      break
    case 'gone':
      open.leave(message.owner)
      send({ kind: 'noted' })
      break
    case 'close':
      closeStore(store)
  }
})

/** Stores the batches of all workers in one transaction. */
function write(store: Store, calls: OpenCallsOfAll, parts: readonly Part[]) {
  const batches = parts.map(({ batch }) => unpackBatch(packedIn(batch)))
  const results = store.write(batches.flat())
  let from = 0
  return batches.map((batch, place) => {
    const own = results.slice(from, from + batch.length)
    from += batch.length
    calls.note(parts[place]?.owner ?? 0, batch, own)
    return bytesOf(packResults(own))
  })
}

// Proven by db/sqlite/workers/link.ts, which sends nothing else.
const packedIn = (bytes: Uint8Array): PackedBatch => deserialize(bytes) as PackedBatch

/** In memory of their own: it is handed over, and Node's small buffers share theirs. */
const bytesOf = (value: unknown): Uint8Array<ArrayBuffer> => new Uint8Array(serialize(value))

function leftIn(store: Store): ReadonlyMap<string, number> {
  const places = store.openDecisions().toSorted((one, other) => one - other)
  const decisions = store.decisionsAt(places)
  return new Map(decisions.map(({ request_id: request }, row) => [String(request), places[row] ?? 0]))
}
