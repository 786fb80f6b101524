import { createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { type DatabaseLocation, locationOf, readLedger } from '../../db/engine.ts'
import { exportedLines } from '../../db/ledger/read/read.ts'
import { exportLine, type StoredRow } from '../../db/ledger/record/leaf.ts'
import type { DamagedRow } from '../../db/ledger/verify/verify.ts'
import { exportPostgres } from '../../db/postgres/ledger/inspect.ts'
import { openReadOnly, storedRows, userNames } from '../../db/sqlite/ledger/rows.ts'
import { escapeHiddenJson } from '../../proxy/visible.ts'
import { commandOf, verbOf } from '../command.ts'

const FAILED = 9
const ROWS_PER_CHUNK = 256

export const verb = verbOf({
  name: 'sallyport export-audit',
  takes: 'DATABASE',
  misuse: 'name one database',
  about: `Writes the audit ledger of a database as NDJSON, one row per line: of a SQLite file, or of postgres://…. It is only read, even
while the gateway runs. \`${commandOf('verify', 'verify-audit')}\` verifies what was written.`,
  options: {
    out: {
      type: 'string',
      value: 'FILE',
      description: 'write to FILE (mode 0600, must not exist) instead of standard output',
    },
    archive: {
      type: 'string',
      value: 'DIR',
      description:
        'begin with the rows of the segments in DIR, from the oldest on that is there with all later ones',
    },
  },
  notes: 'Exit code: 0, or 9 if it cannot be read or written.',
  failing: { as: 'export-audit', usage: FAILED, failed: FAILED },
  run: async ({ out, archive }, [database]) => {
    const target = out === undefined ? process.stdout : createWriteStream(out, { mode: 0o600, flags: 'wx' })
    // On a terminal it is to be read, not verified.
    const form = out === undefined && process.stdout.isTTY ? forTerminal : unchangedLines
    await pipeline(await linesOf(locationOf(database), archive ?? null), form, target)
  },
})

async function linesOf(location: DatabaseLocation, archive: string | null): Promise<AsyncIterable<string>> {
  if (location.engine === 'postgres') return exportPostgres(location.url, archive)
  if (archive !== null) return exportedLines((await readLedger(location)).kysely, {}, archive)
  const db = openReadOnly(location.file)
  return Readable.from(chunks(storedRows(db), userNames(db)))
}

const unchangedLines = (lines: AsyncIterable<string>): AsyncIterable<string> => lines

/** Escapes characters that hide or control, as JSON does. `lines`: texts of whole lines. */
async function* forTerminal(lines: AsyncIterable<string>): AsyncGenerator<string> {
  for await (const text of lines) yield text.split('\n').map(escapeHiddenJson).join('\n')
}

function* chunks(
  rows: Iterable<StoredRow | DamagedRow>,
  names: ReturnType<typeof userNames>,
): Generator<string> {
  let [text, count] = ['', 0]
  for (const row of rows) {
    if ('damaged' in row) throw new Error(`a row ${row.damaged}`)
    text += `${exportLine(row, names(row))}\n`
    count += 1
    if (count % ROWS_PER_CHUNK !== 0) continue
    yield text
    text = ''
  }
  if (text !== '') yield text
}
