import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { NODE_COMPILE_CACHE } from '../run.ts'
import type { Link } from './link.ts'
import type { Scope } from './scope.ts'

const ROOT = join(import.meta.dirname, '../../..')
const START_MS = 60_000

/** A gateway as a process of its own, which can be ended and started again on its port and data directory. */
export interface Replica {
  readonly name: string
  readonly url: string
  readonly port: number
  /** Its way to the database. */
  readonly link: Link
  readonly pid: () => number
  /** Resolves once it says that it is ready. */
  readonly start: () => Promise<void>
  readonly signal: (signal: NodeJS.Signals) => void
  /** SIGKILL; resolves when it is gone. */
  readonly kill: () => Promise<void>
  /** SIGTERM; resolves with its exit code. */
  readonly stop: () => Promise<number | null>
  /** Null while it runs as it should; else how it ended by itself. */
  readonly ended: () => string | null
  /** What its runs have written so far. */
  readonly output: () => string
  /** The file descriptors that it holds, and its resident memory in bytes. */
  readonly held: () => { readonly descriptors: number; readonly resident: number }
}

interface ReplicaOptions {
  readonly name: string
  readonly directory: string
  readonly port: number
  readonly link: Link
  /** What all have in common. */
  readonly env: Readonly<Record<string, string>>
}

/** Prepares a replica. It is not started yet; it is killed with the scope where it still runs. */
export async function replicaOf(
  scope: Scope,
  { name, directory, port, link, env }: ReplicaOptions,
): Promise<Replica> {
  const data = join(directory, name)
  await mkdir(data, { mode: 0o700 })
  const own = { ...env, MCP_PROXY_LISTEN: `127.0.0.1:${port}`, MCP_PROXY_DATA_DIR: data }
  let run: Run | null = null
  let [output, wanted, ended] = ['', false, null as string | null]
  const running = (): Run => {
    if (!run) throw new Error(`${name} does not run`)
    return run
  }
  const start = async (): Promise<void> => {
    wanted = true
    const begun = begin({ ...own, PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE }, (text) => {
      output += text
    })
    run = begun
    void begun.over.then((how) => {
      if (wanted && run === begun) ended ??= `${how}: ${output.slice(-2_000)}`
    })
    await begun.ready
  }
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    const ending = running()
    wanted = false
    ending.child.kill(signal)
    await ending.over
    return ending.child.exitCode
  }
  scope.teardown(async () => {
    run?.child.kill('SIGKILL')
    await run?.over
  })
  return {
    name,
    url: `https://localhost:${port}`,
    port,
    link,
    pid: () => running().child.pid ?? 0,
    start,
    signal: (signal) => void running().child.kill(signal),
    kill: async () => void (await end('SIGKILL')),
    stop: () => end('SIGTERM'),
    ended: () => ended,
    output: () => output,
    held: () => heldBy(running().child.pid ?? 0),
  }
}

interface Run {
  readonly child: ChildProcess
  readonly ready: Promise<void>
  readonly over: Promise<string>
}

function begin(env: Readonly<Record<string, string>>, onOutput: (text: string) => void): Run {
  const child = spawn(process.execPath, ['--max-semi-space-size=16', join(ROOT, 'proxy/main.ts')], {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  const { promise: ready, resolve, reject } = Promise.withResolvers<void>()
  const late = setTimeout(() => reject(new Error(`it was not ready in a minute: ${said}`)), START_MS)
  const take = (chunk: Buffer): void => {
    onOutput(chunk.toString())
    if (said.length < 20_000) said += chunk.toString()
    if (/\{"msg":"ready","url":/.test(said)) resolve()
  }
  child.stdout.on('data', take)
  child.stderr.on('data', take)
  const over = new Promise<string>((told) => {
    child.once('close', (code, signal) => {
      reject(new Error(`it ended before it was ready: ${said}`))
      told(`ended with ${code ?? signal}`)
    })
  })
  void ready.then(
    () => clearTimeout(late),
    () => clearTimeout(late),
  )
  ready.catch(() => {})
  return { child, ready, over }
}

const heldBy = (pid: number) => ({
  descriptors: readdirSync(`/proc/${pid}/fd`).length,
  resident: Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024,
})
