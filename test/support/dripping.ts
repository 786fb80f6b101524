import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import type { Test } from 'tap'
import type { Identity } from './gateway.ts'

type Child = ChildProcessByStdio<null, Readable, null>

/** Starts the other end as a process of its own: its memory and its work are not ours. */
export function drip(t: Test, args: readonly string[], who: Identity | null = null): Child {
  const identity = JSON.stringify(who ? { cert: who.cert, key: who.key } : {})
  const child = spawn(process.execPath, [join(import.meta.dirname, 'drip.ts'), ...args], {
    env: { PATH: process.env.PATH ?? '', IDENTITY: identity },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  return child
}
