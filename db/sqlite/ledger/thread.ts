import { extname } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { MAIN_STREAM } from '../../ledger/record/leaf.ts'
import type { LedgerWork, LedgerWriter, OpenDecision, WorkResult } from '../../ledger/record/writer.ts'
import { expectedAuditSchema } from './form/schema-expected.ts'
import type { FromWriter, ToWriter, WriterOptions } from './packing.ts'
import { packBatch, unpackResults } from './packing.ts'

/** The values of a batch that are copied in one turn of the loop: those of 512 calls, and more. */
const MAX_VALUES_AT_ONCE = 16_384

/** Starts the writer's thread. Rejects with its one sentence if it cannot write there. */
export async function openSqliteWriter(file: string): Promise<LedgerWriter> {
  const options: WriterOptions = { file, schema: await expectedAuditSchema() }
  // The compiled package has it as .js: like the file that this is.
  const code = new URL(`./writer${extname(import.meta.filename)}`, import.meta.url)
  const worker = new Worker(code, { workerData: options })
  const ready = await firstMessage(worker)
  if (ready.kind === 'ready') return connect(worker, ready.head)
  await worker.terminate()
  throw new Error('message' in ready ? ready.message : `the audit writer began with ${ready.kind}`)
}

function firstMessage(worker: Worker): Promise<FromWriter> {
  return new Promise((resolve, reject) => {
    worker.on('message', (message: object) => isFromWriter(message) && resolve(message))
    worker.once('error', reject)
  })
}

// Under `node --watch` Node reports the files that the thread imports through the port of its messages.
function isFromWriter(message: object): message is FromWriter {
  return 'kind' in message
}

interface PendingLedgerRequest {
  readonly resolve: (answer: FromWriter) => void
  readonly reject: (error: Error) => void
}

function connect(worker: Worker, head: LedgerWriter['head']): LedgerWriter {
  // Owned by this function: the thread answers in the order of asking.
  const unanswered: PendingLedgerRequest[] = []
  const lost = Promise.withResolvers<Error>()
  let closing = false
  let fault: Error | null = null

  function lose(error: Error): void {
    if (fault) return
    fault = error
    // A poisoned thread stays as it is, its file untouched, but it must not keep the process alive.
    worker.unref()
    lost.resolve(error)
    for (const { reject } of unanswered.splice(0)) reject(error)
  }

  function ask(question: ToWriter): Promise<FromWriter> {
    if (fault) return Promise.reject(fault)
    const { promise, resolve, reject } = Promise.withResolvers<FromWriter>()
    unanswered.push({ resolve, reject })
    worker.postMessage(question)
    return promise
  }

  worker.removeAllListeners('error')
  worker.removeAllListeners('message')
  worker.on('message', (message: object) => {
    if (!isFromWriter(message)) return
    if (message.kind === 'poisoned') return lose(new Error(message.message))
    const question = unanswered.shift()
    if (message.kind === 'failed') question?.reject(new Error(message.message))
    else question?.resolve(message)
  })
  worker.on('error', (error) => lose(new Error(`the audit writer broke: ${String(error)}`, { cause: error })))
  const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()))
  void ended.then(() => closing || lose(new Error('the audit writer ended without being asked')))

  return {
    stream: MAIN_STREAM,
    head,
    lost: lost.promise,
    async write(batch) {
      const packed = packBatch(batch)
      const { values } = packed
      let from = 0
      // A change of a thousand principals is long to copy: others get their turn. One batch is written at a time.
      for (; values.length - from > MAX_VALUES_AT_ONCE; from += MAX_VALUES_AT_ONCE) {
        const part = values.slice(from, from + MAX_VALUES_AT_ONCE)
        worker.postMessage({ kind: 'part', values: part } satisfies ToWriter)
        await nextTurn()
      }
      const last = from === 0 ? packed : { ...packed, values: values.slice(from) }
      return resultsOf(await ask({ kind: 'write', batch: last }), batch)
    },
    unfinished: async () => {
      const decisions = decisionsOf(await ask({ kind: 'open-decisions' }))
      return decisions.length === 0 ? [] : [{ statements: [], decisions }]
    },
    close: () => {
      closing = true
      if (fault) return Promise.resolve()
      worker.postMessage({ kind: 'close' } satisfies ToWriter)
      return ended
    },
  }
}

function resultsOf(answer: FromWriter, batch: readonly LedgerWork[]): readonly WorkResult[] {
  if (answer.kind !== 'written') throw new Error(`the audit writer answered a batch with ${answer.kind}`)
  return unpackResults(answer.results, batch)
}

function decisionsOf(answer: FromWriter): readonly OpenDecision[] {
  if (answer.kind !== 'open-decisions')
    throw new Error(`the audit writer answered a question with ${answer.kind}`)
  return answer.decisions
}
