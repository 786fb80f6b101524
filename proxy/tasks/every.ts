import type { Logger } from 'pino'

export interface PeriodicTask {
  readonly name: string
  readonly everyMs: number
  /** True: runs once at the start too, not only when the first interval is over. */
  readonly atStart?: boolean
  readonly run: () => Promise<void>
}

/** Runs each task at its interval, never twice at once, and logs its errors. Returns their stop. */
export function runTasks(tasks: readonly PeriodicTask[], log: Logger): () => void {
  const timers = tasks.map((task) => {
    let running = false
    const tick = (): void => {
      if (running) return
      running = true
      task
        .run()
        .catch((error: unknown) => log.error({ err: error, task: task.name }, 'task failed'))
        .finally(() => {
          running = false
        })
    }
    if (task.atStart) tick()
    return setInterval(tick, task.everyMs).unref()
  })
  return () => {
    for (const timer of timers) clearInterval(timer)
  }
}
