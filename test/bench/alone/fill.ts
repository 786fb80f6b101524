// Fills the ledger of a database with rows, by the ledger itself. Usage: node fill.ts FILE ROWS

import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { entry } from './entry.ts'

/** The rows of a unit, and the units that are under way at a time. */
const ROWS_PER_UNIT = 500
const CALLERS = 4

const [, , file = '', count = '0'] = process.argv
const database = await openDatabase(`sqlite:${file}`)
const ledger = await openLedger({ database, version: 'bench' })
let left = Number(count)
const caller = async (): Promise<void> => {
  while (left > 0) {
    const length = Math.min(ROWS_PER_UNIT, left)
    left -= length
    await ledger.commit({ entries: Array.from({ length }, () => entry('denied')) })
  }
}
await Promise.all(Array.from({ length: CALLERS }, caller))
await ledger.close()
await database.close()
process.stdout.write('{}\n')
