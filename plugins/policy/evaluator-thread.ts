import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { MAX_QUESTIONS, type PolicyEngine } from './engine.ts'
import type { EvaluatorMessage, EvaluatorOptions } from './evaluator-messages.ts'

interface EvaluatorLimits {
  /** The time from the question to its answer, waiting included. ms. */
  readonly deadlineMs: number
  /** The time that a started thread may take until it is ready. ms. */
  readonly startMs: number
}

interface PolicyQuestion {
  readonly input: string
  readonly timer: NodeJS.Timeout
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: Error) => void
}

/** The compiled package has it as .js: like the file that this is. */
const CODE = `./evaluator${extname(import.meta.filename)}`
/** The bound of the thread's own heap. The policy's memory is bounded by `maximumPages`. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 }

/**
 * Runs a compiled policy in a thread of its own and ends the thread with a question that is late: WebAssembly
 * cannot be interrupted otherwise. Then another is started at once, and the waiting questions go on waiting
 * within their deadline. Resolves when the first thread is ready; rejects with its one sentence if the policy
 * cannot be used.
 */
export async function startEvaluator(
  options: EvaluatorOptions,
  limits: EvaluatorLimits,
): Promise<PolicyEngine> {
  const evaluator = new Evaluator(options, limits)
  await evaluator.started
  return { evaluate: (input) => evaluator.evaluate(input), close: () => evaluator.close() }
}

class Evaluator {
  readonly #options: EvaluatorOptions
  readonly #limits: EvaluatorLimits
  readonly #started = Promise.withResolvers<void>()
  readonly #waiting: PolicyQuestion[] = []
  /** The question that the thread has: one at a time, so that ending the thread takes no other with it. */
  #current: PolicyQuestion | null = null
  #thread: Worker | null = null
  #startTimer: NodeJS.Timeout | null = null
  #ready = false
  /** Set once it is closed: then a thread lives only while there is a question. */
  #closed: PromiseWithResolvers<void> | null = null

  constructor(options: EvaluatorOptions, limits: EvaluatorLimits) {
    this.#options = options
    this.#limits = limits
    this.#start()
  }

  get started(): Promise<void> {
    return this.#started.promise
  }

  evaluate(input: string): Promise<unknown> {
    if (this.#waiting.length >= MAX_QUESTIONS) {
      return Promise.reject(new Error('too many calls wait for the policy'))
    }
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const timer = setTimeout(() => this.#late(question), this.#limits.deadlineMs)
    const question: PolicyQuestion = { input, timer, resolve, reject }
    this.#waiting.push(question)
    this.#next()
    return promise
  }

  close(): Promise<void> {
    this.#closed ??= Promise.withResolvers<void>()
    this.#next()
    return this.#closed.promise
  }

  #start(): void {
    const thread = this.#newThread()
    if (!thread) return
    this.#thread = thread
    this.#ready = false
    this.#startTimer = setTimeout(
      () => this.#lose(thread, new Error('the policy did not start in time')),
      this.#limits.startMs,
    )
    thread.on('message', (message: EvaluatorMessage) => {
      if (this.#thread === thread) this.#hear(thread, message)
    })
    thread.on('error', (error) => this.#lose(thread, new Error('the policy broke', { cause: error })))
    thread.on('exit', () => this.#lose(thread, new Error("the policy's thread ended")))
    // A deadline always runs while somebody waits; nothing else may keep the process alive. Last, because a
    // listener for messages does.
    thread.unref()
  }

  /** Makes a thread; null if the machine gives none: waiting questions are refused then. */
  #newThread(): Worker | null {
    try {
      return new Worker(new URL(CODE, import.meta.url), {
        workerData: this.#options,
        resourceLimits: RESOURCE_LIMITS,
        // A policy sees nothing of this process: no environment, and its prints do not become lines of our log.
        // Nobody reads them: a reader would keep the process alive.
        env: {},
        execArgv: [],
        stdout: true,
        stderr: true,
      })
    } catch (cause) {
      this.#refuse(this.#waiting.splice(0), new Error('the policy has no thread', { cause }))
      return null
    }
  }

  #refuse(questions: readonly PolicyQuestion[], error: Error): void {
    this.#started.reject(error)
    for (const question of questions) {
      clearTimeout(question.timer)
      question.reject(error)
    }
  }

  #hear(thread: Worker, message: EvaluatorMessage): void {
    if (message.kind === 'unusable') this.#lose(thread, new Error(message.message))
    else if (message.kind === 'ready') this.#begin()
    else this.#settle(message)
    this.#next()
  }

  #begin(): void {
    if (this.#startTimer) clearTimeout(this.#startTimer)
    this.#ready = true
    this.#started.resolve()
  }

  #settle(message: Exclude<EvaluatorMessage, { kind: 'ready' | 'unusable' }>): void {
    const question = this.#current
    this.#current = null
    if (!question) return
    clearTimeout(question.timer)
    if (message.kind === 'failed') question.reject(new Error(`the policy failed: ${message.message}`))
    else question.resolve(message.answer === null ? undefined : JSON.parse(message.answer))
  }

  /** Gives the thread something to do, or makes one that can, or lets it go. */
  #next(): void {
    if (this.#current) return
    if (this.#waiting.length === 0) {
      if (this.#closed) this.#end()
      return
    }
    if (!this.#thread) this.#start()
    if (!this.#thread || !this.#ready) return
    this.#current = this.#waiting.shift() ?? null
    this.#thread.postMessage(this.#current?.input)
  }

  #late(question: PolicyQuestion): void {
    const error = new Error(`the policy did not answer within ${this.#limits.deadlineMs} ms`)
    const place = this.#waiting.indexOf(question)
    if (place >= 0) this.#waiting.splice(place, 1)
    else if (this.#thread) this.#lose(this.#thread, error)
    question.reject(error)
    this.#next()
  }

  /** Drops a thread that was ended, or has ended by itself: its question is refused. */
  #lose(thread: Worker, error: Error): void {
    if (this.#thread !== thread) return
    const wasReady = this.#ready
    void thread.terminate()
    this.#thread = null
    if (this.#startTimer) clearTimeout(this.#startTimer)
    const lost = this.#current ? [this.#current] : []
    this.#current = null
    // A thread that could not even start would not start for those who wait either.
    if (!wasReady) lost.push(...this.#waiting.splice(0))
    this.#refuse(lost, error)
    if (wasReady && !this.#closed) this.#start()
    this.#next()
  }

  #end(): void {
    const thread = this.#thread
    this.#thread = null
    if (this.#startTimer) clearTimeout(this.#startTimer)
    void Promise.resolve(thread?.terminate()).then(() => this.#closed?.resolve())
  }
}
