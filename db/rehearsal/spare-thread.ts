import type { Worker } from 'node:worker_threads'

/** The time that an unused thread is kept. ms. */
const IDLE_MS = 30_000

/** A place for one thread that waits for its next task. */
export interface SpareThread {
  /** Takes the thread out. Null: there is none. */
  acquire(): Worker | null
  /**
   * Keeps a thread that has done its task until it is taken or its time is over. It does not keep the process
   * from ending. Returns false if another one is kept: this one is the caller's to end.
   */
  offer(thread: Worker): boolean
}

export function spareThread(idleMs = IDLE_MS): SpareThread {
  let kept: { readonly thread: Worker; readonly late: NodeJS.Timeout } | null = null

  function take(): Worker | null {
    if (kept === null) return null
    const { thread, late } = kept
    kept = null
    clearTimeout(late)
    thread.off('error', drop).off('exit', drop).ref()
    return thread
  }

  function keep(thread: Worker): boolean {
    if (kept !== null) return false
    thread.on('error', drop).on('exit', drop).unref()
    const late = setTimeout(() => void take()?.terminate(), idleMs)
    late.unref()
    kept = { thread, late }
    return true
  }

  // A thread that ends by itself while nobody waits for it is not handed out.
  function drop(): void {
    take()
  }

  return { acquire: take, offer: keep }
}
