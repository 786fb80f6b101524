import { McpThreadPool } from './threads.ts'

/**
 * The size up to which a message, a definition or a set of arguments is read on the thread that serves, which
 * takes 5 ms at worst. Bytes.
 */
export const MAX_INLINE_BYTES = 32 * 1024

/** What calls wait for. Two: one caller's long questions are not another's wait. */
export const callThreads = new McpThreadPool({ maxThreads: 2, lateMs: 4_000, waitMs: 8_000 })

/** The definitions of tools, which nobody but a reading waits for. */
export const definitionThreads = new McpThreadPool({ maxThreads: 1, lateMs: 10_000, waitMs: 60_000 })
