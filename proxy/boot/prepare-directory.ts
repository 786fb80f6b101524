import { mkdir, realpath } from 'node:fs/promises'
import { databaseLocation } from '../../db/engine.ts'
import { networkFileSystemOf } from '../../db/sqlite/file-system.ts'
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
 * alone. Throws one sentence if links make the data directory one of the secrets, or the database's file lies
 * on a network file system and nobody insists on it.
 */
export async function makeDataDirectory(
  settings: Settings,
  fileSystemOf = networkFileSystemOf,
): Promise<void> {
  const { dataDir, secretsDir, databaseUrl, allowNetworkDisk } = settings
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  await mkdir(secretsDir, { recursive: true, mode: 0o700 })
  if (isWithin(await realpath(dataDir), await realpath(secretsDir)))
    throw new Error(
      `${secretsDir} leads to the data directory, whose contents must never be sent to MCP servers`,
    )
  const location = databaseLocation(databaseUrl)
  if (location.engine !== 'sqlite' || allowNetworkDisk) return
  const network = await fileSystemOf(location.file)
  if (network !== null)
    throw new Error(
      `the database ${location.file} lies on a network file system (${network}), where SQLite's locks and log do not hold: put MCP_PROXY_DATA_DIR or MCP_PROXY_DATABASE_URL on a disk of this machine, or use PostgreSQL. If one machine alone ever opens it, and its locks and fsync hold there, MCP_PROXY_ALLOW_NETWORK_DISK=true insists`,
    )
}
