import { constants, existsSync } from 'node:fs'
import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { readPrivateFile } from '../../certs/authority/key-store.ts'
import { databaseLocation, openDatabase } from '../../db/engine.ts'
import { serviceEntry } from '../../plugins/audit/entries.ts'
import { makeDataDirectory } from '../../proxy/boot/prepare-directory.ts'
import { rotatePassphrase } from '../../proxy/boot/rotate-passphrase.ts'
import { readSettings, type Settings } from '../../proxy/boot/settings.ts'
import { openControl } from '../../proxy/http/control-socket.ts'
import { loadConfiguration } from '../../proxy/wiring/configuration.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport rotate-passphrase',
  about: `Seals every key with a new passphrase: the CA, the keys of tokens and of the log, those of commitments. The database
changes in one transaction, with a row of the ledger; from then on only the new passphrase opens it. If the verb is interrupted,
run it again as before: everything opens with the old passphrase or with the new one, and the second run completes it.`,
  options: {
    new: {
      type: 'string',
      value: 'FILE',
      description:
        'the file with the new passphrase, of its owner alone, at least 16 characters.\nDefault: a random one, if the data directory keeps the passphrase',
    },
  },
  notes: `The present passphrase is that of MCP_PROXY_KEY_PASSPHRASE, or of the file key-passphrase in the data directory, which then
gets the new one. No gateway may run on this data directory. On PostgreSQL gateways on others go on with what they have opened;
each needs the new passphrase at its next start, and cannot rotate a key before. Back-ups of before need the old passphrase.`,
  run: async ({ new: file }) => {
    const settings = readSettings(process.env, process.cwd())
    const next = file === undefined ? null : (await readPrivateFile(file)).trim()
    await requireDeployment(settings)
    const { digest } = await loadConfiguration(settings.pluginsDir, process.env)
    const control = await openControl(settings.dataDir)
    try {
      const database = await openDatabase(settings.databaseUrl)
      try {
        const at = Date.now()
        const entry = {
          ...serviceEntry('admin.passphrase_rotated', 'success', { via: 'socket' }, at, digest),
          principal_id: `socket:${process.getuid?.() ?? 'unknown'}`,
          principal_type: 'operator',
        }
        const { outcome, sealed } = await rotatePassphrase(settings, database, { next, at, entry })
        print(
          outcome === 'rotated'
            ? `sealed ${sealed} keys of the database with the new passphrase`
            : 'completed a rotation that was interrupted: everything is sealed with the new passphrase',
        )
        print(
          settings.keyPassphrase === null
            ? `the new passphrase is in ${join(settings.dataDir, 'key-passphrase')}: back it up`
            : 'give every gateway the new passphrase (MCP_PROXY_KEY_PASSPHRASE_FILE), and restart one after the other',
        )
      } finally {
        await database.close()
      }
    } finally {
      await control.close()
    }
  },
})

/** Refuses, before anything is written, where there is nothing to seal or nothing can be written. */
async function requireDeployment(settings: Settings): Promise<void> {
  const location = databaseLocation(settings.databaseUrl)
  if (location.engine === 'sqlite' && !existsSync(location.file))
    throw new Error(`there is no database at ${location.file}: nothing is sealed here yet`)
  await makeDataDirectory(settings)
  for (const path of [settings.dataDir, join(settings.dataDir, 'ca')]) {
    if (existsSync(path))
      await access(path, constants.W_OK).catch((cause: unknown) => {
        throw new Error(`${path} cannot be written: nothing was changed`, { cause })
      })
  }
}
