import { listRows } from '../../db/audit/read.ts'
import { openDatabase } from '../../db/database.ts'
import type { Start } from './ground/children.ts'
import { rssMbOf } from './ground/proc.ts'
import type { Bench } from './workbench.ts'

/** The time that a gateway takes to be ready on a data directory that holds something. */
export interface StartUp {
  /** The median time from the start of the process to its ready line. ms. */
  readonly readyMs: number
  /** Rows in its ledger. */
  readonly rows: number
  /** Resident memory when ready. MiB. */
  readonly rssMb: number | null
}

const TIMES = 3

/** Starts and stops the gateway of `start` a few times. No other may run on its data directory. */
export async function measureStart(bench: Bench, start: Omit<Start, 'core'>): Promise<StartUp> {
  const rows = await rowsIn(`${start.env?.MCP_PROXY_DATA_DIR}/sallyport.db`)
  const times: number[] = []
  let rssMb: number | null = null
  for (let i = 0; i < TIMES; i += 1) {
    const child = await bench.children.start({ ...start, core: bench.cores.measured })
    times.push(child.readyMs)
    rssMb = rssMbOf(child.pid)
    await child.stop()
  }
  const [, readyMs = 0] = times.sort((a, b) => a - b)
  bench.say(`gateway start: ${Math.round(readyMs)} ms with ${rows} rows`)
  return { readyMs, rows, rssMb }
}

async function rowsIn(file: string): Promise<number> {
  const database = await openDatabase(`sqlite:${file}`)
  const { rows } = await listRows(database.kysely, { order: 'desc', limit: 1 })
  await database.close()
  return rows[0]?.seq ?? 0
}
