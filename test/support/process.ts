import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Test } from 'tap'
import { databaseSettings } from './db/engine.ts'
import { ADMIN_SECRET, PLUGIN_FILES, writeFiles } from './gateway.ts'
import { NODE_COMPILE_CACHE } from './run.ts'

const ROOT = join(import.meta.dirname, '../..')

/** A gateway as a process of its own, as an operator starts it. */
export interface Process {
  readonly child: ChildProcess
  /** What it has written to both of its outputs so far. */
  readonly output: () => string
  /** Resolves with its base URL once it says that it is ready; rejects where it ends before. */
  readonly ready: Promise<string>
  /** Resolves when it has ended and its outputs are read. */
  readonly ended: Promise<Ended>
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly output: string
}

/** The environment of a gateway on a directory of its own, whose providers are at `upstreamUrl`. */
export async function environment(directory: string, upstreamUrl: string): Promise<Record<string, string>> {
  const pluginsDir = join(directory, 'config')
  await writeFiles(pluginsDir, PLUGIN_FILES, upstreamUrl)
  return {
    PATH: process.env.PATH ?? '',
    NODE_COMPILE_CACHE,
    MCP_PROXY_LISTEN: '127.0.0.1:0',
    MCP_PROXY_DATA_DIR: join(directory, 'data'),
    MCP_PROXY_PLUGINS_DIR: pluginsDir,
    MCP_PROXY_ADMIN_SECRET: ADMIN_SECRET,
    ...(await databaseSettings(join(directory, 'data'))),
  }
}

/**
 * Starts `proxy/main.ts` with exactly this environment. It is killed with the test. `root`: the sources of another
 * version. `limit`: what its shell does first, as `ulimit -n 256;`.
 */
export function startProcess(
  t: Test,
  env: Readonly<Record<string, string>>,
  args: readonly string[] = [],
  root = ROOT,
  limit = '',
): Process {
  const started = [process.execPath, ...args, join(root, 'proxy/main.ts')]
  const child = spawn('/bin/sh', ['-c', `${limit}exec "$@"`, 'sh', ...started], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const ready = Promise.withResolvers<string>()
  const take = (chunk: Buffer): void => {
    output += chunk.toString()
    const url = /\{"msg":"ready","url":"([^"]+)"/.exec(output)?.[1]
    if (url !== undefined) ready.resolve(url)
  }
  child.stdout.on('data', take)
  child.stderr.on('data', take)
  const ended = new Promise<Ended>((resolve) => {
    child.once('close', (code, signal) => {
      ready.reject(new Error(`ended before it was ready: ${output}`))
      resolve({ code, signal, output })
    })
  })
  // Whoever waits for it hears it; a test of a refusal waits for the end alone.
  ready.promise.catch(() => {})
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  return { child, output: () => output, ready: ready.promise, ended }
}
