import { setTimeout as pause } from 'node:timers/promises'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import type { TestGateway } from './gateway.ts'

/** For what nobody announces, such as a row that is written after the answer. ms. */
const PATIENCE_MS = 8_000
/** The time between two questions: an eighth of what has passed, for whoever is asked also works. ms. */
const [MIN_PAUSE_MS, MAX_PAUSE_MS] = [10, 100]

/**
 * Asks again and again until the answer is as wanted, and resolves with it; with the last one when patience
 * ends.
 */
export async function eventually<T>(
  ask: () => T | Promise<T>,
  wanted: (answer: T) => boolean,
  patienceMs = PATIENCE_MS,
): Promise<T> {
  const begun = Date.now()
  for (;;) {
    const answer = await ask()
    const passed = Date.now() - begun
    if (wanted(answer) || passed > patienceMs) return answer
    await pause(Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, passed / 8)))
  }
}

interface Calls {
  readonly allowed: readonly AuditRow[]
  readonly ended: readonly AuditRow[]
  readonly denied: readonly AuditRow[]
}

/** The rows of all LLM calls, oldest first, once each allowed one has its outcome. */
export function settledCalls(gateway: Pick<TestGateway, 'rows'>): Promise<Calls> {
  const look = async (): Promise<Calls> => {
    const rows = await gateway.rows({ action: 'egress_llm_chat', order: 'asc', limit: 1000 })
    const having = (...wanted: string[]) => rows.filter(({ status }) => wanted.includes(status))
    return {
      allowed: having('allowed'),
      ended: having('success', 'error', 'truncated', 'unknown'),
      denied: having('denied'),
    }
  }
  return eventually(look, ({ allowed, ended }) => ended.length >= allowed.length)
}
