import fs from 'node:fs'
import promises from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import Sqlite from 'better-sqlite3'
import { Client } from 'pg'

// Imported first, in a process of its own (killed-at.ts): SIGKILL before the nth write of all its threads, counted from
// when the file KILL_AT, which holds n, is there.
const { KILL_AT = '' } = process.env
const { closeSync, existsSync, openSync, readFileSync, statSync, writeSync } = fs

/** A byte for each write. */
const COUNT = `${KILL_AT}.${process.pid}`

function countWrite(): void {
  if (!existsSync(KILL_AT)) return
  const count = openSync(COUNT, 'a')
  writeSync(count, '.')
  closeSync(count)
  if (statSync(COUNT).size >= Number(readFileSync(KILL_AT, 'utf8'))) process.kill(process.pid, 'SIGKILL')
}

type Call = (this: unknown, ...args: unknown[]) => unknown

/** Counts the calls of a method, those that `isWrite` says. */
function watch(
  of: object,
  name: string,
  isWrite: (self: unknown, args: readonly unknown[]) => boolean,
): void {
  const real = Reflect.get(of, name) as Call
  Object.assign(of, {
    [name](this: unknown, ...args: unknown[]) {
      if (isWrite(this, args)) countWrite()
      return real.apply(this, args)
    },
  })
}

const ALL = (): boolean => true
const toWrite = (_self: unknown, [, flags = 'r']: readonly unknown[]): boolean =>
  typeof flags === 'number' ? (flags & (fs.constants.O_WRONLY | fs.constants.O_RDWR)) !== 0 : flags !== 'r'
for (const name of ['rename', 'rm', 'rmdir', 'unlink', 'mkdir', 'writeFile']) watch(promises, name, ALL)
for (const name of ['renameSync', 'rmSync', 'unlinkSync', 'mkdirSync', 'writeFileSync']) watch(fs, name, ALL)
watch(promises, 'open', toWrite)
const toFile = (_self: unknown, [fd]: readonly unknown[]): boolean => Number(fd) > 2
for (const name of ['write', 'writev', 'writeSync', 'fsync', 'fsyncSync']) watch(fs, name, toFile)
const handle = await promises.open('/dev/null')
for (const name of ['write', 'writev', 'writeFile', 'sync', 'datasync'])
  watch(Object.getPrototypeOf(handle), name, ALL)
await handle.close()
syncBuiltinESMExports()

const memory = new Sqlite(':memory:')
const isCommit = (text: unknown): boolean => /^commit\b/i.test(String(text))
watch(Object.getPrototypeOf(memory.prepare('select 1')), 'run', (self) =>
  isCommit((self as { source: string }).source),
)
memory.close()
watch(Client.prototype, 'query', (_self, [query]) => isCommit((query as { text?: string })?.text ?? query))
