import { databaseLocation } from '../../db/engine.ts'
import { copyToPostgres } from '../../db/postgres/copy.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import { verbOf } from '../command.ts'
import { print, printNotice } from '../print.ts'

/** The time between two lines of progress. ms. */
const SHOWN_EVERY_MS = 2_000

export const verb = verbOf({
  name: 'sallyport copy-database',
  about: `Copies a whole deployment from SQLite to PostgreSQL: the audit ledger, row for row and verified, principals, capabilities,
keys, MCP servers and settings. The gateway must be stopped. The SQLite database is left as it is. If the copy is
interrupted, run it again: it continues where it stopped.`,
  options: {
    to: {
      type: 'string',
      value: 'URL',
      needed: true,
      description: 'postgres://… of an empty database',
    },
  },
  notes: `Then start the gateway on the same data directory, with MCP_PROXY_DATABASE_URL set to the URL, and MCP_PROXY_KEY_PASSPHRASE to
the content of the file key-passphrase of the data directory. It puts the CA into the database, from which further gateways,
each with its own data directory, get it.`,
  run: async ({ to }) => {
    const target = databaseLocation(to ?? '')
    if (target.engine !== 'postgres') throw new Error('--to must be a URL postgres://…')
    const source = databaseLocation(readSettings(process.env, process.cwd()).databaseUrl)
    if (source.engine !== 'sqlite')
      throw new Error('MCP_PROXY_DATABASE_URL must name the SQLite database to copy')
    const rows = await copyToPostgres({ file: source.file, url: target.url, onCopied: progress() })
    print(`copied ${source.file}, with ${rows.toLocaleString('en')} rows of the ledger; it verifies`)
  },
})

function progress(): (rows: number, of: number) => void {
  let shownAt = performance.now()
  return (rows, of) => {
    if (performance.now() - shownAt < SHOWN_EVERY_MS) return
    shownAt = performance.now()
    printNotice(`copied ${rows.toLocaleString('en')} of ${of.toLocaleString('en')} rows`)
  }
}
