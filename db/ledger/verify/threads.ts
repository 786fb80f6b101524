import { availableParallelism } from 'node:os'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { isMainThread, parentPort, type TransferListItem, Worker, workerData } from 'node:worker_threads'
import { isObject } from '../../support/json.ts'
import { type LeafPage, readLeaves } from '../canonical/leaf-row.ts'

/** A module that reads pages, here or in threads. Its `input` and `data` can cross to a thread. */
export interface PageReader<Data, Input, Page extends LeafPage = LeafPage> {
  readonly module: string
  readonly role: string
  /** Reads in this thread. */
  readonly read: (input: Input) => Page
  readonly data: Data
}

/** The start of a thread. In the single file of auditors all roles are in one module. */
interface ReaderStart {
  readonly role: string
  readonly data: unknown
}

const startOf = (value: unknown): ReaderStart | null =>
  !isMainThread && isObject(value) && typeof value.role === 'string'
    ? { role: value.role, data: value.data }
    : null

/** True in a thread that reads pages. */
export const isPageThread = startOf(workerData) !== null

/** Serves, if this thread was started for a role. `open`: makes what reads an input. */
export function serveAs<Data, Input>(role: string, open: (data: Data) => (input: Input) => LeafPage): void {
  const start = startOf(workerData)
  if (start?.role !== role) return
  // Proven by the reader, which has given its data to a thread of its own module.
  const read = open(start.data as Data)
  parentPort?.on('message', (input: Input) => {
    const page = pageOrNull(read, input)
    parentPort?.postMessage(page, page ? buffersOf(page) : [])
  })
  parentPort?.postMessage('ready')
}

function pageOrNull<Input, Page>(read: (input: Input) => Page, input: Input): Page | null {
  try {
    return read(input)
  } catch {
    return null
  }
}

// Each is whole, and nobody else's.
const buffersOf = (page: LeafPage): readonly TransferListItem[] =>
  Object.values(page).flatMap(({ buffer }: Uint8Array) => (buffer instanceof ArrayBuffer ? [buffer] : []))

const readLines = (block: Uint8Array<ArrayBuffer>): LeafPage =>
  readLeaves(Buffer.from(block.buffer, block.byteOffset, block.byteLength), false, { isHashed: false })

/** Reads blocks of whole lines of an export. Few of those are compared with a tree. */
export const lineReader: PageReader<null, Uint8Array<ArrayBuffer>> = {
  module: import.meta.url,
  role: 'lines',
  read: readLines,
  data: null,
}
serveAs(lineReader.role, () => readLines)

/** The leaves that are read at once: some of their lines may be empty. */
export const MAX_SEALED_LINES = 512

const readSealed = (block: Uint8Array<ArrayBuffer>): LeafPage =>
  readLeaves(Buffer.from(block.buffer, block.byteOffset, block.byteLength), true, {
    most: MAX_SEALED_LINES + 1,
  })

/** Reads blocks of leaves with their digests before them. */
export const sealedLineReader: typeof lineReader = { ...lineReader, role: 'sealed lines', read: readSealed }
serveAs(sealedLineReader.role, () => readSealed)

const MAX_THREADS = 3
/** Inputs that one thread has at once: while it reads one, the next is there. */
const MAX_INPUTS = 2
/** Pages that are ready before their turn. */
const MAX_AHEAD = 4
/** Inputs before it is worth a thread. */
const FEW_INPUTS = 8

/** A page that comes in its turn. Null: it could not be read. */
interface ComingPage<Page> {
  readonly page: Promise<Page | null> | Page | null
  isReady: boolean
}

/**
 * Reads inputs in their order, in as many threads as there are cores beside this one, and here while those have
 * enough to do. Null: an input could not be read. `cross`: the parts of an input that are handed over.
 */
export async function* readPages<Data, Input, Page extends LeafPage>(
  reader: PageReader<Data, Input, Page>,
  inputs: AsyncIterable<Input> | Iterable<Input>,
  cross: (input: Input) => readonly TransferListItem[] = () => [],
): AsyncGenerator<Page | null> {
  const coming: ComingPage<Page>[] = []
  let [threads, count]: [readonly PageThread<Page>[] | null, number] = [null, 0]
  try {
    for await (const input of inputs) {
      count += 1
      if (count > FEW_INPUTS) threads ??= await startThreads(reader)
      for (;;) {
        // Pages of threads are heard between two turns.
        if (threads && threads.length > 0) await nextTurn()
        const free = threads?.find(({ waiting }) => waiting < MAX_INPUTS)
        const isNextReady = coming[0]?.isReady
        if (free) coming.push(free.read(input, cross(input)))
        else if (!isNextReady) coming.push({ page: pageOrNull(reader.read, input), isReady: true })
        // Read here only while there is nothing to judge.
        if (free || !isNextReady) break
        yield (await coming.shift()?.page) ?? null
      }
      if (coming.length > MAX_INPUTS * (threads?.length ?? 0) + MAX_AHEAD)
        yield (await coming.shift()?.page) ?? null
    }
    for (const { page } of coming) yield await page
  } finally {
    for (const { worker } of threads ?? []) await worker.terminate()
  }
}

/** Starts threads; none if this is one itself, which serves, or a thread cannot start here. */
async function startThreads<Page extends LeafPage>({
  module,
  role,
  data,
}: Omit<PageReader<unknown, never, Page>, 'read'>): Promise<readonly PageThread<Page>[]> {
  const count = isMainThread ? Math.min(MAX_THREADS, availableParallelism() - 1) : 0
  const threads: PageThread<Page>[] = []
  try {
    while (threads.length < count) threads.push(new PageThread(new URL(module), { role, data }))
    await Promise.all(threads.map(({ started }) => started.promise))
    return threads
  } catch {
    for (const { worker } of threads) await worker.terminate()
    return []
  }
}

class PageThread<Page> {
  readonly worker: Worker
  readonly #waiting: (PromiseWithResolvers<Page | null> & { readonly coming: ComingPage<Page> })[] = []
  readonly started = Promise.withResolvers<void>()

  constructor(module: URL, start: ReaderStart) {
    // It prints nothing, and says nothing of what went wrong: its pages are null then.
    this.worker = new Worker(module, { workerData: start, stdout: true, stderr: true })
    this.started.promise.catch(() => {})
    this.worker.on('message', (message: Page | null | 'ready') => {
      if (message === 'ready') this.started.resolve()
      else this.#answer(message)
    })
    this.worker.on('error', (error) => this.started.reject(error))
    this.worker.on('exit', () => {
      this.started.reject(new Error('the thread ended'))
      while (this.waiting > 0) this.#answer(null)
    })
  }

  get waiting(): number {
    return this.#waiting.length
  }

  read(input: unknown, parts: readonly TransferListItem[]): ComingPage<Page> {
    const reply = Promise.withResolvers<Page | null>()
    const coming: ComingPage<Page> = { page: reply.promise, isReady: false }
    this.#waiting.push({ ...reply, coming })
    this.worker.postMessage(input, parts)
    return coming
  }

  #answer(page: Page | null): void {
    const asked = this.#waiting.shift()
    if (!asked) return
    asked.coming.isReady = true
    asked.resolve(page)
  }
}
