import { extname } from 'node:path'
import { Worker, type WorkerOptions } from 'node:worker_threads'
import type { FromThread, ThreadStart, ToThread } from './task-thread.ts'

interface ThreadPoolOptions {
  readonly name: string
  readonly data?: unknown
  /** Threads at once. Default 1. */
  readonly maxThreads?: number
  /** Tasks that one thread has at once. Default 1: a thread that is ended then ends no other task. */
  readonly maxTasksPerThread?: number
  /** Threads that are kept without a task. Default: all. */
  readonly maxIdle?: number
  /** The time that a thread is kept without a task. ms. Default: no end. */
  readonly idleMs?: number
  /** True: a thread that ended is replaced at once. Default: by the next task. */
  readonly isWarm?: boolean
  /** The tasks of one key that wait at once. Default 1,024. */
  readonly maxWaiting?: number
  /** The time that a thread may take to start. ms. Default: no end. */
  readonly startMs?: number
  /** The time that a task may wait for its turn; without `workMs`, for its answer. ms. Default: no end. */
  readonly waitMs?: number
  /** The time that a task may take. ms. The first one of a thread, whose code is cold, has `startMs` more. */
  readonly workMs?: number
  /** True: a task that nobody waits for any more is ended with its thread. Default: it is told. */
  readonly endsOnAbort?: boolean
  readonly worker?: Pick<WorkerOptions, 'env' | 'execArgv' | 'resourceLimits' | 'stdout' | 'stderr'>
  /** Makes the error of a task that is refused: too many wait, or its turn did not come in time. */
  readonly overloaded?: () => Error
  /** Makes the error of a task that threw one with a reason. Null: the reason is none that callers know. */
  readonly refusal?: (reason: string, message: string) => Error | null
}

export interface TaskRequester {
  /** The tasks of one key are done one after the other. Absent: the task waits for no other. */
  readonly key?: string
  readonly signal?: AbortSignal | undefined
}

type TaskReply = Extract<FromThread, { readonly kind: 'piece' | 'done' }>
type Task = (input: never, signal: AbortSignal) => unknown
type PieceOf<Work> = Work extends AsyncGenerator<infer Piece, unknown, unknown> ? Piece : never
type ResultOf<Work> = Work extends AsyncGenerator<unknown, infer Result, unknown> ? Result : Awaited<Work>

interface QueuedTask {
  readonly id: number
  readonly key: string | null
  readonly question: ToThread
  /** The answer, or its next piece. */
  reply: PromiseWithResolvers<TaskReply>
  /** Null: it waits, or it is over. */
  thread: PooledThread | null
  /** Ends its wait, then its work. */
  timer?: NodeJS.Timeout | undefined
  /** The end of the thread that ends with it. */
  ending?: Promise<void>
}

interface PooledThread {
  readonly worker: Worker
  readonly tasks: Map<number, QueuedTask>
  readonly started: PromiseWithResolvers<void>
  readonly ended: Promise<void>
  isReady: boolean
  /** Ends its start, then its idleness. */
  timer?: NodeJS.Timeout | undefined
}

/** The error of a task that was not done: it had no turn, took too long, or its thread broke. */
export class TaskIncompleteError extends Error {}

/** The compiled package has it as .js: like the file that this is. */
const EXTENSION = extname(import.meta.filename)
const THREAD = new URL(`./task-thread${EXTENSION}`, import.meta.url)
const MAX_WAITING = 1_024

/**
 * Does a module's tasks on threads that keep no process alive by themselves. Keys take turns; a key's tasks
 * are done in order, one at a time. A thread that is late or breaks ends with its own tasks alone. A
 * generator makes each piece when asked for.
 */
export class ThreadPool<Tasks extends { readonly [Name in keyof Tasks]: Task }> {
  readonly #module: string
  readonly #options: ThreadPoolOptions
  readonly #threads = new Set<PooledThread>()
  /** Tasks by key; the key whose turn is next comes first. Null: the tasks without one. */
  readonly #waiting = new Map<string | null, Set<QueuedTask>>()
  #lastId = 0
  #isClosed = false

  /** `module`: path of the module that exports `openTasks`, seen from the caller's and without its ending. */
  constructor({ url }: Pick<ImportMeta, 'url'>, module: string, options: ThreadPoolOptions) {
    this.#module = new URL(`${module}${EXTENSION}`, url).href
    this.#options = options
  }

  /**
   * Rejects as the task throws (an Error of its sentence, or of `refusal`), with {@link TaskIncompleteError}
   * or the error of `overloaded` if it was not done, and with the signal's reason.
   */
  async ask<Name extends keyof Tasks & string>(
    name: Name,
    input: Parameters<Tasks[Name]>[0],
    requester?: TaskRequester,
  ): Promise<ResultOf<ReturnType<Tasks[Name]>>> {
    const { value } = await this.stream(name, input, requester).next()
    // A task that is no generator has no pieces.
    return value as ResultOf<ReturnType<Tasks[Name]>>
  }

  /** Reads piece by piece; returns the result. Rejects as {@link ask} does. A reader who stops ends it. */
  async *stream<Name extends keyof Tasks & string>(
    name: Name,
    input: Parameters<Tasks[Name]>[0],
    { key, signal }: TaskRequester = {},
  ): AsyncGenerator<PieceOf<ReturnType<Tasks[Name]>>, ResultOf<ReturnType<Tasks[Name]>>, void> {
    signal?.throwIfAborted()
    const task = this.#queue(name, input, key ?? null)
    // Also if the answer is never read on.
    const gone = (): void => this.#abandon(task, signal?.reason)
    signal?.addEventListener('abort', gone, { once: true })
    try {
      for (;;) {
        const { kind, value } = await task.reply.promise
        // Proven by the type of the tasks, here and below.
        if (kind === 'done') return value as ResultOf<ReturnType<Tasks[Name]>>
        signal?.throwIfAborted()
        task.reply = newReply()
        if (!task.thread) task.reply.reject(this.#error('ended'))
        yield value as PieceOf<ReturnType<Tasks[Name]>>
        task.thread?.worker.postMessage({ kind: 'more', id: task.id } satisfies ToThread)
      }
    } finally {
      signal?.removeEventListener('abort', gone)
      if (task.thread) this.#abandon(task, this.#error('ended'))
      // Whoever counts tasks counts threads: one in native code goes on for a while after it was told to end.
      await task.ending
    }
  }

  /** True while it has a thread, also one that only starts. */
  get isRunning(): boolean {
    return this.#threads.size > 0
  }

  async start(): Promise<void> {
    const thread = this.#start()
    if (!thread) throw this.#error('has no thread')
    thread.worker.ref()
    await thread.started.promise
  }

  /**
   * Ends threads as they become idle, and resolves at the end; new tasks are done too. A reason ends all at
   * once: tasks under way fail with it.
   */
  async close(reason?: Error): Promise<void> {
    this.#isClosed = true
    const threads = [...this.#threads]
    if (reason) this.#refuse(reason)
    for (const thread of threads) {
      if (reason) this.#lose(thread, reason)
      else this.#rest(thread)
    }
    await Promise.all(threads.map(({ ended }) => ended))
  }

  #queue(task: string, input: unknown, key: string | null): QueuedTask {
    const { maxWaiting = MAX_WAITING, waitMs, overloaded } = this.#options
    const own = this.#waiting.get(key) ?? new Set()
    if (own.size >= maxWaiting) throw overloaded?.() ?? this.#error('has too many tasks that wait')
    this.#lastId += 1
    const id = this.#lastId
    const question: ToThread = { kind: 'ask', id, task, input }
    const queued: QueuedTask = { id, key, question, reply: newReply(), thread: null }
    if (waitMs !== undefined) queued.timer = setTimeout(() => this.#late(queued, waitMs), waitMs)
    this.#waiting.set(key, own.add(queued))
    this.#next()
    return queued
  }

  /** Gives threads something to do, and starts one where all are busy and there may be more. */
  #next(): void {
    for (;;) {
      const task = this.#turn()
      if (!task) return
      const thread = this.#free() ?? this.#start()
      if (!thread) return
      this.#give(thread, task)
    }
  }

  #turn(): QueuedTask | undefined {
    const busy = new Set([...this.#threads].flatMap(({ tasks }) => [...tasks.values()].map(({ key }) => key)))
    for (const [key, [first]] of this.#waiting) if (key === null || !busy.has(key)) return first
    return undefined
  }

  #free(): PooledThread | undefined {
    const { maxTasksPerThread = 1 } = this.#options
    return [...this.#threads].find(({ tasks }) => tasks.size < maxTasksPerThread)
  }

  /** Starts a thread. Returns null if the others must do, or the machine gives none. */
  #start(): PooledThread | null {
    const { maxThreads = 1, data, startMs, worker: options } = this.#options
    if (this.#threads.size >= maxThreads) return null
    const workerData: ThreadStart = { module: this.#module, data }
    let worker: Worker
    try {
      worker = new Worker(THREAD, { ...options, workerData })
    } catch (cause) {
      if (this.#threads.size === 0) this.#refuse(this.#error('has no thread', cause))
      return null
    }
    const [started, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    started.promise.catch(() => {})
    const thread: PooledThread = { worker, tasks: new Map(), started, ended: ended.promise, isReady: false }
    // Under `node --watch` Node reports what the thread imports through the port of its messages.
    worker.on('message', (message: object) => 'kind' in message && this.#hear(thread, message as FromThread))
    worker.on('error', (cause) => this.#lose(thread, this.#error('broke', cause)))
    worker.on('exit', () => {
      ended.resolve()
      this.#lose(thread, this.#error('ended'))
    })
    // Last, since a listener for messages keeps the process.
    worker.unref()
    if (startMs !== undefined)
      thread.timer = setTimeout(() => this.#lose(thread, this.#error('did not start in time')), startMs)
    this.#threads.add(thread)
    return thread
  }

  #give(thread: PooledThread, task: QueuedTask): void {
    this.#dequeue(task)
    if (this.#options.workMs !== undefined) clearTimeout(task.timer)
    task.thread = thread
    thread.tasks.set(task.id, task)
    thread.worker.ref()
    if (thread.isReady) this.#send(thread, task)
  }

  #send(thread: PooledThread, task: QueuedTask, extraMs = 0): void {
    clearTimeout(thread.timer)
    const { workMs } = this.#options
    if (workMs !== undefined) task.timer = setTimeout(() => this.#late(task, workMs), workMs + extraMs)
    try {
      thread.worker.postMessage(task.question)
    } catch (error) {
      // The input is of a kind that cannot cross to a thread.
      this.#finish(task)
      task.reply.reject(error)
      this.#rest(thread)
    }
  }

  #hear(thread: PooledThread, message: FromThread): void {
    if (!this.#threads.has(thread)) return
    if (message.kind === 'unusable') this.#lose(thread, new Error(message.message))
    else if (message.kind === 'ready') this.#begin(thread)
    else this.#answer(thread, message)
    this.#next()
    this.#rest(thread)
  }

  #begin(thread: PooledThread): void {
    clearTimeout(thread.timer)
    thread.isReady = true
    thread.started.resolve()
    for (const task of thread.tasks.values()) this.#send(thread, task, this.#options.startMs)
  }

  #answer(thread: PooledThread, message: Extract<FromThread, { readonly id: number }>): void {
    const task = thread.tasks.get(message.id)
    if (!task) return
    if (message.kind !== 'piece') this.#finish(task)
    if (message.kind === 'failed') task.reply.reject(this.#failure(message))
    else task.reply.resolve(message)
  }

  #failure({ reason, message }: Extract<FromThread, { readonly kind: 'failed' }>): Error {
    const refusal = reason === null ? null : this.#options.refusal?.(reason, message)
    return refusal ?? new Error(message)
  }

  #finish(task: QueuedTask): void {
    clearTimeout(task.timer)
    task.thread?.tasks.delete(task.id)
    task.thread = null
  }

  /** Takes a task out of those that wait. Returns false if it is not among them. */
  #dequeue(task: QueuedTask): boolean {
    const own = this.#waiting.get(task.key)
    if (!own?.delete(task)) return false
    // To the end: it is the other keys' turn.
    this.#waiting.delete(task.key)
    if (own.size > 0) this.#waiting.set(task.key, own)
    return true
  }

  /** Nobody waits for the answer any more. A task that a thread has begun keeps it until it is over. */
  #abandon(task: QueuedTask, reason: unknown): void {
    task.reply.reject(reason)
    const { thread } = task
    if (this.#dequeue(task)) clearTimeout(task.timer)
    else if (thread && this.#options.endsOnAbort) {
      task.ending = thread.ended
      this.#lose(thread, this.#error('ended'))
    } else if (thread?.isReady) thread.worker.postMessage({ kind: 'end', id: task.id } satisfies ToThread)
    else if (thread) {
      this.#finish(task)
      this.#next()
      this.#rest(thread)
    }
  }

  #late(task: QueuedTask, ms: number): void {
    const { workMs, overloaded } = this.#options
    const error = this.#error(`did not answer within ${ms} ms`)
    if (task.thread?.isReady) {
      // First, so that it is not said that its thread ended.
      task.reply.reject(error)
      this.#lose(task.thread, this.#error('ended'))
    } else this.#abandon(task, (workMs !== undefined && overloaded?.()) || error)
  }

  /** Lets a thread without a task go: at once if it is one too many, else when it stays without. */
  #rest(thread: PooledThread): void {
    if (!this.#threads.has(thread) || thread.tasks.size > 0) return
    const { idleMs, maxIdle = Number.POSITIVE_INFINITY } = this.#options
    const idle = [...this.#threads].filter(({ tasks }) => tasks.size === 0).length
    thread.worker.unref()
    if (this.#isClosed || (thread.isReady && idle > maxIdle)) this.#lose(thread, this.#error('ended'))
    if (!thread.isReady || idleMs === undefined) return
    clearTimeout(thread.timer)
    thread.timer = setTimeout(() => this.#lose(thread, this.#error('ended')), idleMs).unref()
  }

  /** Ends a thread, or takes note that it has ended: its tasks fail. */
  #lose(thread: PooledThread, error: Error): void {
    if (!this.#threads.delete(thread)) return
    clearTimeout(thread.timer)
    void thread.worker.terminate()
    thread.started.reject(error)
    for (const task of [...thread.tasks.values()]) {
      this.#finish(task)
      task.reply.reject(error)
    }
    // One that could not even start would not start for those who wait either.
    if (!thread.isReady && this.#threads.size === 0) this.#refuse(error)
    if (thread.isReady && this.#options.isWarm && !this.#isClosed) this.#start()
    this.#next()
  }

  #refuse(error: Error): void {
    for (const task of [...this.#waiting.values()].flatMap((own) => [...own])) this.#abandon(task, error)
  }

  #error(what: string, cause?: unknown): TaskIncompleteError {
    return new TaskIncompleteError(`${this.#options.name} ${what}`, { cause })
  }
}

function newReply(): PromiseWithResolvers<TaskReply> {
  const reply = Promise.withResolvers<TaskReply>()
  // Nobody may be reading when it fails.
  reply.promise.catch(() => {})
  return reply
}
