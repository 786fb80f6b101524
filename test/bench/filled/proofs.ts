import { rm } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { readSettings, type Settings } from '../../../proxy/boot/settings.ts'
import { withControl } from '../../../scripts/admin/control.ts'
import { fillLedger, measureTree } from '../alone/measure.ts'
import type { TreeAlone } from '../alone/tree.ts'
import { isChosen } from '../chosen.ts'
import { gatewayStart } from '../ground/gateway.ts'
import { cpuUsOf } from '../ground/proc.ts'
import type { Measured } from '../job.ts'
import { measuring } from '../measuring.ts'
import { type Point, PRIME } from '../points.ts'
import type { Bench } from '../workbench.ts'

/** What sealing a backlog takes, what calls take meanwhile, and what a tree costs that is as large. */
export interface ProofsPoint {
  readonly rows: number
  /** From the gateway's start to the last checkpoint, with calls beside it for a part of the time. s. */
  readonly seconds: number
  /** The processor time of the gateway over that time. Per row, the calls included. */
  readonly cpuUs: number | null
  /** Calls at a rate while rows are sealed, and when all are. */
  readonly beside: Measured
  readonly after: Measured
  readonly tree: TreeAlone
}

const CALLS: Point = { name: 'beside sealing', connections: 16, kind: 'json', rate: 100 }
const LOOK_MS = 500

/** Measures on SQLite. Null where the plan wants no rows sealed. */
export async function measureProofs(bench: Bench): Promise<ProofsPoint | null> {
  const { children, cores, ground, plan, say } = bench
  if (plan.seal === 0 || !isChosen(plan, 'proofs')) return null
  const start = await gatewayStart(ground, 'proofs')
  const dataDir = `${start.env?.MCP_PROXY_DATA_DIR}`
  say(`filling a ledger with ${plan.seal} rows that are in no tree`)
  await fillLedger(children, {
    directory: ground.directory,
    file: `${dataDir}/sallyport.db`,
    rows: plan.seal,
  })
  const child = await children.start({ ...start, core: cores.measured })
  const [from, cpuFrom] = [performance.now(), cpuUsOf(child.pid)]
  const settings = readSettings({ ...ground.env, MCP_PROXY_DATA_DIR: dataDir }, ground.directory)
  const measure = measuring(bench, { child, ground, tls: true, prime: PRIME })
  // As few as the plan has it: sealing may end before them.
  const beside = await measure({ ...CALLS, unprimed: true })
  const isOver = (await sealedBy(settings)) >= plan.seal
  if (isOver) say('PROOFS: all rows were sealed before the calls ended')
  while ((await sealedBy(settings)) < plan.seal) await pause(LOOK_MS)
  const seconds = (performance.now() - from) / 1_000
  const cpuTo = cpuUsOf(child.pid)
  const after = await measure({ ...CALLS, unprimed: true })
  await child.stop()
  await rm(dataDir, { recursive: true })
  say(`proofs: ${plan.seal} rows sealed in ${Math.round(seconds)} s`)
  return {
    ...{ rows: plan.seal, seconds, beside, after },
    cpuUs: cpuFrom === null || cpuTo === null ? null : (cpuTo - cpuFrom) / plan.seal,
    tree: await measureTree(children, { directory: ground.directory, leaves: plan.seal }),
  }
}

/** The rows under the newest checkpoint. */
async function sealedBy(settings: Settings): Promise<number> {
  const { body } = await withControl(settings, (call) => call('GET', '/v1/audit/checkpoint'))
  return Number(String(body).split('\n')[1] ?? 0)
}
