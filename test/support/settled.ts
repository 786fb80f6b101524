import { setTimeout as pause } from 'node:timers/promises'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import type { TestGateway } from './gateway.ts'

/** For what nobody announces, such as a row that is written after the answer. ms. */
const PATIENCE_MS = 8_000

/**
 * Asks again and again until the answer is as wanted, and resolves with it; with the last one when patience
 * ends.
 */
export async function eventually<T>(
  ask: () => T | Promise<T>,
  wanted: (answer: T) => boolean,
  patienceMs = PATIENCE_MS,
): Promise<T> {
  const end = Date.now() + patienceMs
  for (;;) {
    const answer = await ask()
    if (wanted(answer) || Date.now() > end) return answer
    await pause(10)
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
