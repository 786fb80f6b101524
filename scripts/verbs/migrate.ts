import { readFile } from 'node:fs/promises'
import { databaseLocation, databaseMigrationState, openDatabase } from '../../db/engine.ts'
import { withClient } from '../../db/postgres/connection.ts'
import { adoptColumns, type ColumnAdoption } from '../../db/postgres/ledger/columns.ts'
import { makeDataDirectory } from '../../proxy/boot/prepare-directory.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import { verbOf, WrongUsage } from '../command.ts'
import { print } from '../print.ts'

const USAGE = 'use status or up'
const PENDING = 3

/** The time that the statements after a migration may take: they wait for nobody's rows. ms. */
const GRANTS_MS = 30_000

const ADOPTION: Readonly<Record<ColumnAdoption, readonly string[]>> = {
  adopted: ['rows of the ledger and their guards have the form of this version from now on'],
  before: [],
  waits: [
    'rows of the ledger or their guards keep their former form, because gateways are running: run this again when none is',
  ],
}

export const verb = verbOf({
  name: 'sallyport migrate',
  takes: 'status|up',
  misuse: USAGE,
  about: `Shows which migrations the database of MCP_PROXY_DATABASE_URL has run and which it needs (status), or runs those (up). A
gateway does the same when it starts; this is to do it beforehand. On PostgreSQL any number may run it at once: one
migrates, the others find nothing left to do.`,
  options: {
    'dry-run': { type: 'boolean', description: 'with up: only say what would be run' },
    grants: {
      type: 'string',
      value: 'FILE',
      description: 'with up, on PostgreSQL: run these statements behind it, e.g. deploy/postgres/grants.sql',
    },
  },
  notes: `Exit code: 0; 3 if status or --dry-run finds migrations to run; 1 if the database cannot be read or brought up to date.`,
  run: async ({ 'dry-run': dryRun = false, grants }, [command]) => {
    if (command !== 'status' && command !== 'up') throw new WrongUsage(USAGE)
    const settings = readSettings(process.env, process.cwd())
    const location = databaseLocation(settings.databaseUrl)
    if (grants !== undefined && (command !== 'up' || location.engine !== 'postgres'))
      throw new WrongUsage('--grants works only with up, on PostgreSQL')
    // Before anything is changed: a file that is not there.
    const statements = grants === undefined ? null : await readFile(grants, 'utf8')
    const { applied, pending } = await databaseMigrationState(settings.databaseUrl)
    const says = (word: string, names: readonly string[]): void => {
      for (const name of names) print(`${word} ${name}`)
    }
    if (command === 'status') says('applied', applied)
    if (command === 'status' || dryRun) {
      says('pending', pending)
      return pending.length > 0 ? PENDING : 0
    }
    await makeDataDirectory(settings)
    const database = await openDatabase(settings.databaseUrl)
    await database.close()
    says('applied', pending)
    if (location.engine === 'postgres')
      for (const line of ADOPTION[await withClient(settings.databaseUrl, GRANTS_MS, adoptColumns)])
        print(line)
    if (statements !== null)
      await withClient(settings.databaseUrl, GRANTS_MS, (client) => client.query(statements))
    return 0
  },
})
