import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Children } from './children.ts'
import type { LedgerPoint } from './ledger.ts'

/** Runs scripts/bench/ledger.ts on a database of its own, on both cores: the writer has a thread of its own. */
export async function measureLedger(
  children: Children,
  directory: string,
  seconds: number,
): Promise<readonly LedgerPoint[]> {
  const { process: child } = await children.start({
    name: 'ledger',
    command: process.execPath,
    args: [join(import.meta.dirname, 'ledger.ts'), directory, String(seconds)],
    core: null,
  })
  const limit = AbortSignal.timeout((seconds * 8 + 30) * 1_000)
  if (child.exitCode === null) await once(child, 'exit', { signal: limit })
  const said = await readFile(join(directory, 'ledger.log'), 'utf8')
  if (child.exitCode !== 0) throw new Error(`the ledger could not be measured:\n${said.slice(-2_000)}`)
  // Printed by scripts/bench/ledger.ts, one line.
  return JSON.parse(said) as readonly LedgerPoint[]
}
