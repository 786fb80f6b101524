import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { Refusal } from '../../../plugins/refusal.ts'
import type { McpThreadRequest, McpThreadResponse, McpThreadTask, McpThreadTasks } from './messages.ts'

/** The time without a question after which a thread is let go, and what it has compiled with it. ms. */
const IDLE_MS = 60_000
/** The time that a new thread may take to read its code, on top of that for its question. ms. */
const START_MS = 10_000
/** The questions of one key that wait at once. */
const MAX_WAITING = 128
/** The bound of a thread's heap. A message of 16 MiB may be a million values. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 768, stackSizeMb: 4 }
/** The compiled package has it as .js: like the file that this is. */
const CODE = `../aside-thread${extname(import.meta.filename)}`

interface ThreadPoolLimits {
  /** Threads at once. */
  readonly maxThreads: number
  /** The time that one question may take. ms. Past it the thread is ended. */
  readonly lateMs: number
  /** The time that a question may wait until it is its turn. ms. */
  readonly waitMs: number
}

/** The party that a question is asked for. */
export interface TaskRequester {
  /** Whoever chose what is asked: a principal, or a resource. */
  readonly key: string
  readonly signal?: AbortSignal | undefined
}

interface QueuedTask {
  readonly key: string
  readonly question: McpThreadRequest
  readonly settle: { readonly resolve: (value: unknown) => void; readonly reject: (error: unknown) => void }
  /** Of its wait, then of its work. */
  timer: NodeJS.Timeout
}

interface PooledThread {
  readonly worker: Worker
  current: QueuedTask | null
  started: boolean
  idle: NodeJS.Timeout | null
}

/** The error of a question that was not answered: it took too long, or its thread broke. */
export class TaskIncompleteError extends Error {}

/**
 * Asks threads that do what strangers can make long: their schemas, arguments, definitions and messages
 * (docs/threats.md#a6). A thread has one question at a time, and a key one thread: whoever asks what takes
 * long waits for that alone, and among those who wait the keys take turns. One question too long ends its
 * thread and no other question.
 */
export class McpThreadPool {
  readonly #limits: ThreadPoolLimits
  readonly #threads = new Set<PooledThread>()
  /** By key; the key whose turn is next comes first. */
  readonly #waiting = new Map<string, Set<QueuedTask>>()

  constructor(limits: ThreadPoolLimits) {
    this.#limits = limits
  }

  /**
   * Answers a question. Rejects as the task throws (a {@link Refusal} as one, anything else as an Error with
   * its sentence), with {@link TaskIncompleteError} where it takes too long, with `overloaded` where its turn does not
   * come in time or 128 of its key wait already, and with the signal's reason.
   */
  async ask<T extends McpThreadTask>(
    task: T,
    input: Parameters<McpThreadTasks[T]>[0],
    { key, signal }: TaskRequester,
  ): Promise<ReturnType<McpThreadTasks[T]>> {
    signal?.throwIfAborted()
    const own = this.#waiting.get(key) ?? new Set()
    if (own.size >= MAX_WAITING) throw overloaded()
    const { promise, ...settle } = Promise.withResolvers<unknown>()
    const timer = setTimeout(() => this.#leave(waiting, overloaded()), this.#limits.waitMs)
    const waiting: QueuedTask = { key, question: { task, input }, settle, timer }
    const gone = () => this.#leave(waiting, signal?.reason)
    signal?.addEventListener('abort', gone, { once: true })
    this.#waiting.set(key, own.add(waiting))
    this.#next()
    try {
      // Proven by proxy/mcp/aside-thread.ts: the answer is that of the task.
      return (await promise) as ReturnType<McpThreadTasks[T]>
    } finally {
      signal?.removeEventListener('abort', gone)
    }
  }

  /** Gives idle threads something to do, and starts one where all are busy and there may be more. */
  #next(): void {
    for (;;) {
      const turn = this.#turn()
      if (!turn) return
      const thread = this.#idle() ?? this.#start()
      if (thread === 'none') this.#leave(turn, new TaskIncompleteError('the machine gives no thread'))
      else if (thread) this.#give(thread, turn)
      else return
    }
  }

  /** The question whose turn it is: the first of the first key that no thread works for. */
  #turn(): QueuedTask | undefined {
    const busy = new Set([...this.#threads].map(({ current }) => current?.key))
    for (const [key, own] of this.#waiting) {
      if (busy.has(key)) continue
      const [first] = own
      return first
    }
    return undefined
  }

  #idle(): PooledThread | undefined {
    return [...this.#threads].find(({ current }) => current === null)
  }

  #give(thread: PooledThread, turn: QueuedTask): void {
    this.#remove(turn)
    const { lateMs } = this.#limits
    clearTimeout(turn.timer)
    if (thread.idle) clearTimeout(thread.idle)
    const ms = thread.started ? lateMs : lateMs + START_MS
    turn.timer = setTimeout(
      () => this.#lose(thread, new TaskIncompleteError(`not done within ${lateMs} ms`)),
      ms,
    )
    thread.current = turn
    thread.worker.postMessage(turn.question)
  }

  #remove(waiting: QueuedTask): boolean {
    const own = this.#waiting.get(waiting.key)
    if (!own?.delete(waiting)) return false
    // To the end: it is the other keys' turn.
    this.#waiting.delete(waiting.key)
    if (own.size > 0) this.#waiting.set(waiting.key, own)
    return true
  }

  /** Nobody waits for the answer any more. What a thread has begun it finishes. */
  #leave(waiting: QueuedTask, reason: unknown): void {
    if (this.#remove(waiting)) clearTimeout(waiting.timer)
    waiting.settle.reject(reason)
  }

  /** Starts a thread. Returns null where the others must do, `none` where there is no other and the machine gives none. */
  #start(): PooledThread | 'none' | null {
    if (this.#threads.size >= this.#limits.maxThreads) return null
    let worker: Worker
    try {
      // It sees nothing of this process's environment, and has no business with it.
      worker = new Worker(new URL(CODE, import.meta.url), {
        env: {},
        execArgv: [],
        resourceLimits: RESOURCE_LIMITS,
      })
    } catch {
      return this.#threads.size > 0 ? null : 'none'
    }
    const thread: PooledThread = { worker, current: null, started: false, idle: null }
    // Under `node --watch` Node reports what the thread imports through the port of its messages.
    worker.on(
      'message',
      (message: object) => 'kind' in message && this.#hear(thread, message as McpThreadResponse),
    )
    worker.on('error', (cause) => this.#lose(thread, new TaskIncompleteError('the thread broke', { cause })))
    worker.on('exit', () => this.#lose(thread, new TaskIncompleteError('the thread ended')))
    // A timer runs while somebody waits; nothing else may keep the process alive.
    worker.unref()
    this.#threads.add(thread)
    return thread
  }

  #hear(thread: PooledThread, answer: McpThreadResponse): void {
    if (!this.#threads.has(thread)) return
    const { current } = thread
    thread.current = null
    thread.started = true
    if (current) {
      clearTimeout(current.timer)
      settle(current, answer)
    }
    thread.idle = setTimeout(() => this.#lose(thread, new TaskIncompleteError('idle')), IDLE_MS).unref()
    this.#next()
  }

  #lose(thread: PooledThread, error: Error): void {
    if (!this.#threads.delete(thread)) return
    if (thread.idle) clearTimeout(thread.idle)
    void thread.worker.terminate()
    if (thread.current) {
      clearTimeout(thread.current.timer)
      thread.current.settle.reject(error)
    }
    this.#next()
  }
}

function settle({ settle: { resolve, reject } }: QueuedTask, answer: McpThreadResponse): void {
  if (answer.kind === 'done') resolve(answer.value)
  else if (answer.kind === 'refused') reject(new Refusal(answer.reason, { message: answer.message }))
  else reject(new Error(answer.message))
}

const overloaded = (): Refusal => new Refusal('overloaded', { headers: { 'retry-after': '1' } })
