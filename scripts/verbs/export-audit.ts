import { createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { parseArgs } from 'node:util'
import { exportLine, type StoredRow } from '../../db/audit/leaf.ts'
import type { Damaged } from '../../db/audit/verify.ts'
import { messageOf } from '../../db/error-message.ts'
import { openReadOnly, storedRows } from '../../db/sqlite/ledger/rows.ts'

const HELP = `usage: sallyport export-audit DATABASE [--out FILE]

Writes the audit ledger of a SQLite database as NDJSON, one row per line, to FILE (mode 0600, must not exist)
or to standard output. The database is only read, also while the gateway runs.
What was written can be verified with scripts/verbs/verify-audit.ts. Exit code: 0, or 9 where it cannot be read or written.
`

const [DONE, FAILED] = [0, 9]
const ROWS_PER_CHUNK = 256

process.exitCode = await main(process.argv.slice(2))

async function main(args: string[]): Promise<number> {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: { out: { type: 'string' }, help: { type: 'boolean' } },
    })
    const [database, ...rest] = positionals
    if (values.help || database === undefined || rest.length > 0) {
      ;(values.help ? process.stdout : process.stderr).write(HELP)
      return values.help ? DONE : FAILED
    }
    const target =
      values.out === undefined ? process.stdout : createWriteStream(values.out, { mode: 0o600, flags: 'wx' })
    await pipeline(Readable.from(chunks(storedRows(openReadOnly(database)))), target)
    return DONE
  } catch (error) {
    process.stderr.write(`export-audit: ${messageOf(error)}\n`)
    return FAILED
  }
}

function* chunks(rows: Iterable<StoredRow | Damaged>): Generator<string> {
  let [text, count] = ['', 0]
  for (const row of rows) {
    if ('damaged' in row) throw new Error(`a row ${row.damaged}`)
    text += `${exportLine(row)}\n`
    count += 1
    if (count % ROWS_PER_CHUNK !== 0) continue
    yield text
    text = ''
  }
  if (text !== '') yield text
}
