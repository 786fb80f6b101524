import { type ChildProcess, spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { scratch } from '../gateway.ts'
import { NODE_COMPILE_CACHE } from '../run.ts'

const BIN = join(import.meta.dirname, '../../../node_modules/.bin')

/** How long a server may take until it answers. A busy machine starts one in less than a tenth of it. */
const READY_MS = 30_000

/** An MCP server that nobody here wrote, as processes of its own. */
export interface RealServer {
  readonly url: string
  /** What it has written so far. */
  readonly output: () => string
  /** Kills it, and what it started. It is also killed with the test. */
  readonly stop: () => Promise<void>
}

/**
 * `server-everything`: 2025-11-25 with sessions, answers as SSE. It listens on every interface; it cannot be
 * told not to.
 */
export async function startEverything(t: Test): Promise<RealServer> {
  const port = await freePort()
  return start(t, port, ['mcp-server-everything', 'streamableHttp'], { PORT: String(port) })
}

/** `server-memory` behind `mcp-proxy`: both eras. It begins with an empty graph. */
export async function startMemory(t: Test): Promise<RealServer> {
  const MEMORY_FILE_PATH = join(await scratch(t), 'memory.json')
  return startBehindProxy(t, ['mcp-server-memory'], { MEMORY_FILE_PATH })
}

/** `server-filesystem` behind `mcp-proxy`: both eras. It may read and write `directory`, and nothing else. */
export const startFilesystem = (t: Test, directory: string): Promise<RealServer> =>
  startBehindProxy(t, ['mcp-server-filesystem', directory], {})

async function startBehindProxy(
  t: Test,
  [server = '', ...args]: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<RealServer> {
  const port = await freePort()
  const listen = ['--host', '127.0.0.1', '--port', String(port), '--server', 'stream']
  const command = [process.execPath, join(BIN, server), ...args]
  return start(t, port, ['mcp-proxy', ...listen, '--', ...command], env)
}

async function start(
  t: Test,
  port: number,
  [program = '', ...args]: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<RealServer> {
  const child = spawn(process.execPath, [join(BIN, program), ...args], {
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    // A process group of its own: what the program starts is killed with it.
    detached: true,
  })
  let output = ''
  const take = (chunk: Buffer): void => {
    output += chunk.toString()
  }
  child.stdout.on('data', take)
  child.stderr.on('data', take)
  const stop = stopper(child)
  t.teardown(stop)
  const url = `http://127.0.0.1:${port}/mcp`
  await answers(url, child, () => output)
  return { url, output: () => output, stop }
}

function stopper(child: ChildProcess): () => Promise<void> {
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const kill = (): void => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
      process.kill(-child.pid, 'SIGKILL')
    }
  }
  // A group of its own does not die with us; a test that breaks off must leave nothing behind.
  process.once('exit', kill)
  return async () => {
    kill()
    await closed
    process.off('exit', kill)
  }
}

// Both programs say that they listen before they do, so they are asked until they answer.
async function answers(url: string, child: ChildProcess, output: () => string): Promise<void> {
  const deadline = Date.now() + READY_MS
  let last: unknown
  while (child.exitCode === null && child.signalCode === null && Date.now() < deadline) {
    try {
      // Refused, for want of a session; but by the server.
      await (await fetch(url)).body?.cancel()
      return
    } catch (error) {
      last = error
      await setTimeout(20)
    }
  }
  throw new Error(`${url} does not answer: ${output()}`, { cause: last })
}

/** A port that was free a moment ago, for a program that cannot choose one itself and tell. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, () => resolve()))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('a TCP server has no port')
  return address.port
}
