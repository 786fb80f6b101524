import type { Logger } from 'pino'

/** A background task: a verb and a noun, how often, and what it does. */
export interface Task {
  readonly name: string
  readonly everyMs: number
  readonly run: () => Promise<void>
}

/** Runs each task at its interval, never twice at once, and logs what it throws. Returns how to stop them all. */
export function runTasks(tasks: readonly Task[], log: Logger): () => void {
  const timers = tasks.map((task) => {
    let running = false
    const timer = setInterval(() => {
      if (running) return
      running = true
      task
        .run()
        .catch((error: unknown) => log.error({ err: error, task: task.name }, 'task failed'))
        .finally(() => {
          running = false
        })
    }, task.everyMs)
    return timer.unref()
  })
  return () => {
    for (const timer of timers) clearInterval(timer)
  }
}
