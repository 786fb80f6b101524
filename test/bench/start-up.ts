import { rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { openDatabase } from '../../db/engine.ts'
import { listRows } from '../../db/ledger/read/read.ts'
import { fillLedger } from './alone/measure.ts'
import { isChosen } from './chosen.ts'
import type { Start } from './ground/children.ts'
import { gatewayStart } from './ground/gateway.ts'
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

/** Measures the start with as many rows as the plan says. Null where it says none, or `--only` another point. */
export async function measureFullStart(bench: Bench): Promise<StartUp | null> {
  const { children, ground, plan, say } = bench
  if (plan.startRows === 0 || !isChosen(plan, 'start')) return null
  const start = await gatewayStart(ground, 'full')
  const file = fileOf(start)
  say(`filling a ledger with ${plan.startRows} rows`)
  await fillLedger(children, { directory: ground.directory, file, rows: plan.startRows })
  const found = await measureStart(bench, start)
  await rm(dirname(file), { recursive: true })
  return found
}

const fileOf = ({ env }: Omit<Start, 'core'>): string => `${env?.MCP_PROXY_DATA_DIR}/sallyport.db`

/** Starts and stops the gateway of `start` a few times. No other may run on its data directory. */
export async function measureStart(bench: Bench, start: Omit<Start, 'core'>): Promise<StartUp> {
  const rows = await rowsIn(fileOf(start))
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
