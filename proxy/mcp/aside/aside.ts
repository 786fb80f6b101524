import { ThreadPool } from '../../../db/support/thread.ts'
import { REFUSAL_REASONS, Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import type { McpThreadTasks } from './messages.ts'

/** The most that is read on the thread that serves, which takes 5 ms at worst. Bytes. */
export const MAX_INLINE_BYTES = 32 * 1024

/** The time without a task after which a thread is let go, with all that it has compiled. ms. */
const IDLE_MS = 60_000
/** The time that a new thread may take to read its code. ms. */
const START_MS = 10_000
/** The bound of a thread's heap. A message of 16 MiB may be a million values. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 768, stackSizeMb: 4 }

interface McpThreadLimits {
  readonly maxThreads: number
  /** The time that one task may take. ms. Past it the thread is ended. */
  readonly lateMs: number
  /** The time that a task may wait until it is its turn. ms. */
  readonly waitMs: number
}

/**
 * Threads for work that strangers can make long (docs/threats.md#a6). A key, a principal or a resource, has
 * one thread at a time. Rejects with `overloaded` if its turn does not come in time or 128 of its key wait
 * already.
 */
export function mcpThreadPool({ maxThreads, lateMs, waitMs }: McpThreadLimits): ThreadPool<McpThreadTasks> {
  return new ThreadPool(import.meta, '../aside-thread', {
    name: 'the check of MCP messages',
    maxThreads,
    idleMs: IDLE_MS,
    startMs: START_MS,
    waitMs,
    workMs: lateMs,
    maxWaiting: 128,
    // It sees nothing of this process's environment, and has no business with it.
    worker: { env: {}, execArgv: [], resourceLimits: RESOURCE_LIMITS },
    overloaded: () => new Refusal('overloaded', { headers: { 'retry-after': '1' } }),
    refusal: (reason, message) => (isRefusalReason(reason) ? new Refusal(reason, { message }) : null),
  })
}

const isRefusalReason = (reason: string): reason is RefusalReason => Object.hasOwn(REFUSAL_REASONS, reason)

/** Calls wait for these. Two: one caller's long questions are not another's wait. */
export const callThreads = mcpThreadPool({ maxThreads: 2, lateMs: 4_000, waitMs: 8_000 })

export const definitionThreads = mcpThreadPool({ maxThreads: 1, lateMs: 10_000, waitMs: 60_000 })
