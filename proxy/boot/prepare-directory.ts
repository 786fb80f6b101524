import { mkdir, realpath } from 'node:fs/promises'
import { isWithin, type Settings } from './settings.ts'

/** Says on standard error every few seconds how far the conversion of a ledger is. */
export function copyProgressReporter(): (rows: number, of: number) => void {
  let shownAt = performance.now()
  let shown = false
  return (rows, of) => {
    const all = rows === of
    if (all ? !shown : performance.now() - shownAt < SHOWN_EVERY_MS) return
    shownAt = performance.now()
    shown = true
    const [done, whole] = [rows, of].map((count) => count.toLocaleString('en'))
    const next = all ? '; comparing them, and making the indexes' : ''
    process.stderr.write(
      `sallyport: rebuilding the audit ledger: ${done} of ${whole} rows are copied${next}\n`,
    )
  }
}

const SHOWN_EVERY_MS = 3_000

/**
 * Makes the data directory and the one of MCP servers' secrets if they are missing, readable by their owner
 * alone. Throws one sentence if links make the data directory one of the secrets.
 */
export async function makeDataDirectory({ dataDir, secretsDir }: Settings): Promise<void> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  await mkdir(secretsDir, { recursive: true, mode: 0o700 })
  if (!isWithin(await realpath(dataDir), await realpath(secretsDir))) return
  throw new Error(
    `${secretsDir} leads to the data directory, whose contents must never be sent to MCP servers`,
  )
}
