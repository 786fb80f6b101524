import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pino } from 'pino'
import { currentTree } from '../../db/ledger/tree/store.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import { openDataDirectory } from '../../proxy/boot/data-directory.ts'
import type { Settings } from '../../proxy/boot/settings.ts'
import { LogKeys, openTree } from '../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../proxy/proofs/sealer.ts'
import { recordState } from '../../proxy/proofs/state-recorder.ts'

const DAY_MS = 86_400_000
/** The days that rows are from: all but the last are old enough to be archived. */
const DAYS = 3
const AT_ONCE = 512

/**
 * Fills the ledger with rows of the days before, and has the gateway archive them while it fights. Returns the folder of
 * the archive.
 */
export async function recordOldRows(
  settings: Settings,
  directory: string,
  rowsPerDay: number,
): Promise<string> {
  const folder = join(directory, 'archive')
  await mkdir(folder, { mode: 0o700 })
  await writeFile(
    join(directory, 'config', '90-archive.yaml'),
    `plugin: archive\nkeep: 1d\nto: ${folder}\nat: "00:00"\n`,
  )
  let now = Date.now() - DAYS * DAY_MS
  const clock = (): number => now
  const opened = await openDataDirectory(settings, 2 * AT_ONCE, now)
  const { database, ledger, passphrase, names } = opened
  try {
    const keys = new LogKeys({ database, ledger, passphrase, clock })
    await openTree(keys, database, names)
    await keys.open()
    const sealer = new LedgerSealer({ database, ledger, keys, clock })
    const configDigest = (): string => 'a'.repeat(64)
    for (let day = 0; day < DAYS; day += 1, now += DAY_MS) {
      for (let rows = 0; rows < rowsPerDay; rows += AT_ONCE) {
        const note = (n: number) =>
          noteEntry({ action: 'audit.reviewed', detail: { n: rows + n } }, now, configDigest())
        await ledger.commit({ entries: Array.from({ length: AT_ONCE }, (_, n) => note(n)) })
      }
      await sealer.seal()
      const tree = await currentTree(database.kysely)
      if (!tree) throw new Error('nothing is sealed')
      const leaf = tree.size - (tree.size % 256)
      const given = { database, ledger, configDigest, clock, log: pino({ level: 'silent' }) }
      await recordState(given, { tree: tree.tree, leaf }, new AbortController().signal)
    }
  } finally {
    await opened.close()
  }
  return folder
}
