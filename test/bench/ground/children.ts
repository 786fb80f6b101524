import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

/** The time that a child may take to be ready. ms. */
const READY_MS = 60_000
/** The time that a child may take to end when asked. ms. */
const END_MS = 15_000
const LOOK_MS = 2

/** The core of what is measured, and the core of everything else. Null: the system decides. */
export interface Cores {
  readonly measured: number | null
  readonly others: number | null
}

export interface Child {
  readonly name: string
  readonly pid: number
  readonly process: ChildProcess
  /** The port that it listens on, as it announced; 0 for one that announced none. */
  readonly port: number
  /** The time from start to its ready line. ms. */
  readonly readyMs: number
  /** Ends it in order. Rejects where it had already ended with a fault. */
  readonly stop: () => Promise<void>
}

export interface Start {
  readonly name: string
  readonly command: string
  readonly args: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly core: number | null
  /** The sign that is waited for: the ready line, or the port that the function resolves to. Absent: none. */
  readonly ready?: 'line' | ((child: ChildProcess) => Promise<number>)
  readonly ipc?: boolean
}

export interface Children {
  readonly start: (start: Start) => Promise<Child>
  /** Kills whatever still runs, at once. */
  readonly killAll: () => void
}

/** Chooses the cores: taskset and two of them are needed to keep the measured process apart. */
export function coresOf(count: number): Cores {
  const hasTaskset = spawnSync('taskset', ['-c', '0', 'true']).status === 0
  return hasTaskset && count > 1 ? { measured: 0, others: 1 } : { measured: null, others: null }
}

/**
 * Starts processes whose output goes to files of `directory`, and knows all of them until they have ended.
 */
export function openChildren(directory: string): Children {
  const living = new Set<ChildProcess>()
  return {
    start: async (start) => {
      const log = join(directory, `${start.name}.log`)
      const child = spawnOn(start, log, join(directory, 'compile-cache'))
      const ended = once(child, 'exit').then(() => void living.delete(child))
      living.add(child)
      const startedAt = performance.now()
      await once(child, 'spawn')
      const port = await portOf(start, child, log)
      const readyMs = performance.now() - startedAt
      const { pid = 0 } = child
      return { name: start.name, pid, process: child, port, readyMs, stop: () => stop(child, ended, log) }
    },
    killAll: () => {
      for (const child of living) child.kill('SIGKILL')
    },
  }
}

function spawnOn({ command, args, env, core, ipc }: Start, log: string, compileCache: string): ChildProcess {
  const out = openSync(log, 'w', 0o600)
  const stdio: ('ignore' | 'ipc' | number)[] = ['ignore', out, out]
  if (ipc) stdio.push('ipc')
  try {
    const [file, ...rest] =
      core === null ? [command, ...args] : ['taskset', '-c', String(core), command, ...args]
    return spawn(file ?? command, rest, {
      stdio,
      // As `make start` has it, in a place of our own: compiling takes memory that the process then keeps.
      env: { ...inherited(), NODE_COMPILE_CACHE: compileCache, ...env },
    })
  } finally {
    closeSync(out)
  }
}

/** Returns this process's environment without the variables that would configure a gateway. */
function inherited(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !name.startsWith('MCP_PROXY_'))
  return Object.fromEntries(entries)
}

async function portOf({ name, ready }: Start, child: ChildProcess, log: string): Promise<number> {
  const didNotStart = (cause?: unknown): never => {
    throw new Error(`${name} did not start:\n${tail(log)}`, { cause })
  }
  if (ready === undefined) return 0
  if (ready !== 'line') return ready(child).catch(didNotStart)
  const deadline = performance.now() + READY_MS
  while (performance.now() < deadline && child.exitCode === null) {
    const port = /"msg":"ready","url":"https:\/\/[^"]*:(\d+)"/.exec(readFileSync(log, 'utf8'))?.[1]
    if (port !== undefined) return Number(port)
    await pause(LOOK_MS)
  }
  return didNotStart()
}

async function stop(child: ChildProcess, ended: Promise<void>, log: string): Promise<void> {
  if (child.exitCode !== null) throw new Error(`it ended by itself with ${child.exitCode}:\n${tail(log)}`)
  child.kill('SIGTERM')
  const late = setTimeout(() => child.kill('SIGKILL'), END_MS)
  await ended
  clearTimeout(late)
}

const tail = (log: string): string => readFileSync(log, 'utf8').slice(-2_000)
