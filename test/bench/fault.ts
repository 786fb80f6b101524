import { once } from 'node:events'
import { closeSync, openSync, writeSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { openReadOnly } from '../../db/sqlite/ledger/rows.ts'
import { type Ask, asker } from '../siege/callers/ask.ts'
import { inspectLedger, rowsOf } from '../siege/ledger.ts'
import { isChosen } from './chosen.ts'
import type { Child } from './ground/children.ts'
import { gatewayStart } from './ground/gateway.ts'
import { PATH, requestBody } from './load/messages.ts'
import type { Bench } from './workbench.ts'

/** What is left of the record of a gateway that was killed in the middle of its load, several times. */
export interface Fault {
  readonly kills: number
  /** Calls that were sent, and those whose answer the caller got. */
  readonly sent: number
  readonly acknowledged: number
  /** Those of the latter that the ledger does not have as allowed. */
  readonly unrecorded: number
  /** Calls that reached the upstream, and decisions in the ledger that allowed one. */
  readonly reached: number
  readonly allowed: number
  /** Rows of the ledger, and the first that does not verify; null: all of them do. */
  readonly rows: number
  readonly badRow: string | null
  /** Decisions that have not exactly one outcome. */
  readonly unbalanced: number
  /** Outcomes `unknown`: calls that were under way at a kill. */
  readonly unknown: number
  /** The longest time from a start after a kill to ready. ms. */
  readonly readyMs: number
}

const KILLS = 3
const LOAD_MS = 2_000
/** Callers, each with so many calls at a time. */
const CALLERS = 4
const CALLS_EACH = 16
const BODY = requestBody('json')

/** Kills a gateway under load with SIGKILL, starts it again on what is left, and reads its ledger at the end. */
export async function measureFault(bench: Bench): Promise<Fault | null> {
  if (!isChosen(bench.plan, 'fault')) return null
  const { children, cores, ground, upstream, say } = bench
  const start = { ...(await gatewayStart(ground, 'fault')), core: cores.measured }
  const file = join(start.env?.MCP_PROXY_DATA_DIR ?? '', 'sallyport.db')
  const rowsBefore = rowsOf(file)
  const reachedBefore = await callsOf(upstream)
  const log = join(ground.directory, 'answers.log')
  const answers = openSync(log, 'w')
  const tally = { sent: 0 }
  let readyMs = 0
  for (let kill = 0; kill < KILLS; kill += 1) {
    const child = await children.start(start)
    if (kill > 0) readyMs = Math.max(readyMs, child.readyMs)
    const load = { isOver: false }
    const callers = Array.from({ length: CALLERS }, () => asker(child.port, ground.allowed)).flatMap((ask) =>
      Array.from({ length: CALLS_EACH }, () => call(ask, load, tally, answers)),
    )
    await pause(LOAD_MS)
    child.process.kill('SIGKILL')
    await once(child.process, 'exit')
    load.isOver = true
    await Promise.all(callers)
  }
  closeSync(answers)
  const last = await children.start(start)
  readyMs = Math.max(readyMs, last.readyMs)
  await last.stop()
  const { verdict, unbalanced, served, unrecorded } = await inspectLedger(file, log, null)
  const found = {
    ...{ kills: KILLS, sent: tally.sent, acknowledged: served, unrecorded },
    ...{ reached: (await callsOf(upstream)) - reachedBefore, ...decisions(file, rowsBefore) },
    ...{ rows: rowsOf(file), badRow: verdict.ok ? null : JSON.stringify(verdict), unbalanced, readyMs },
  }
  await rm(dirname(file), { recursive: true })
  say(
    `fault: ${found.acknowledged} answers before ${KILLS} kills, ${found.unrecorded} of them not in the ledger`,
  )
  return found
}

/** Calls until a call fails: the gateway is gone. Notes each answer before it asks again. */
async function call(
  ask: Ask,
  load: { readonly isOver: boolean },
  tally: { sent: number },
  answers: number,
): Promise<void> {
  while (!load.isOver) {
    tally.sent += 1
    const answer = await ask({ method: 'POST', path: PATH, body: BODY }).catch(() => null)
    if (answer === null) return
    writeSync(answers, `${answer.status} ${String(answer.headers['x-request-id'])}\n`)
  }
}

/** Asks the upstream how many chat calls have reached it. */
async function callsOf({ process: child }: Child): Promise<number> {
  const answered = once(child, 'message', { signal: AbortSignal.timeout(5_000) })
  child.send('calls')
  // Only ground/upstream.ts speaks on this channel.
  const [calls] = (await answered) as [number]
  return calls
}

function decisions(file: string, after: number): { allowed: number; unknown: number } {
  const db = openReadOnly(file)
  const count = (status: string): number =>
    db
      .prepare<[string, number], number>(
        `select count(*) from audit_log where status = ? and seq > ? and action = 'egress_llm_chat'`,
      )
      .pluck()
      .get(status, after) ?? 0
  const found = { allowed: count('allowed'), unknown: count('unknown') }
  db.close()
  return found
}
