import { ThreadPool } from '../../db/support/thread.ts'
import { MAX_QUESTIONS, type PolicyEngine } from './engine.ts'
import type { EvaluatorOptions, EvaluatorTasks } from './evaluator.ts'

interface EvaluatorLimits {
  /** The time from the question to its answer, waiting included. ms. */
  readonly deadlineMs: number
  /** The time that a started thread may take until it is ready. ms. */
  readonly startMs: number
}

/** The bound of the thread's own heap. The policy's memory is bounded by `maximumPages`. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 }

/**
 * Runs a compiled policy in a thread of its own and ends the thread with a question that is late: WebAssembly
 * cannot be interrupted otherwise. Then another is started at once, and the other questions go on waiting.
 * Rejects with one sentence if the policy cannot be used.
 */
export async function startEvaluator(
  options: EvaluatorOptions,
  { deadlineMs, startMs }: EvaluatorLimits,
): Promise<PolicyEngine> {
  const pool = new ThreadPool<EvaluatorTasks>(import.meta, './evaluator', {
    name: 'the policy',
    data: options,
    isWarm: true,
    startMs,
    waitMs: deadlineMs,
    maxWaiting: MAX_QUESTIONS,
    overloaded: () => new Error('too many calls wait for the policy'),
    // A policy sees nothing of this process: no environment, and its prints do not become lines of our log.
    // Nobody reads them: a reader would keep the process alive.
    worker: { resourceLimits: RESOURCE_LIMITS, env: {}, execArgv: [], stdout: true, stderr: true },
  })
  await pool.start()
  return {
    evaluate: async (input) => {
      const answer = await pool.ask('evaluate', input)
      return answer === null ? undefined : JSON.parse(answer)
    },
    close: () => pool.close(),
  }
}
