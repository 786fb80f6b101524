// Fills the ledger of a database that a gateway has begun with a month of calls, by the ledger itself.
// Usage: node fill-history.ts URL DECISIONS
import { hash } from 'node:crypto'
import { openDatabase } from '../../../db/engine.ts'
import { LedgerReplay } from '../../../db/ledger/authority/replay.ts'
import { listRows } from '../../../db/ledger/read/read.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import type { JudgingRules, RecordedRefusal } from '../../../plugins/audit/decision.ts'
import { decisionOf, type MadeCall, outcomeOf } from './call.ts'

/** The agent that the gateway knows, whose calls are every hundredth. */
export const SOMEBODY = 'acme::allowed'

const DAY_MS = 86_400_000
/** The history ends a minute before now. */
const [LONG_MS, AGO_MS] = [29 * DAY_MS, 60_000]
const CALLERS = 100
const MODELS = ['gpt-5', 'gpt-5-mini', 'claude-opus-5']
/** Decisions between two changes of somebody's authority. */
const CHANGE_EVERY = 5_000
/** Decisions of a unit, and the units that are under way at a time. */
const [PER_UNIT, UNITS] = [250, 4]

const LACKS_CHAT: RecordedRefusal = {
  reason: 'capability_missing',
  by: 'capability',
  requiredCapability: 'llm.chat',
  passed: [],
}

type Caller = MadeCall['caller']

const [, , url = '', count = '0'] = process.argv
const database = await openDatabase(url)
const { caller: somebody, judging } = await begun()
const callers: Caller[] = Array.from({ length: CALLERS - 1 }, (_, n) => ({
  id: `acme::past-${n}`,
  revision: 1,
  thumbprint: hash('sha256', String(n)),
}))
const ledger = await openLedger({ database, version: 'bench' })
const [of, now] = [Number(count), Date.now()]
await ledger.commit({ entries: callers.map((caller) => changed('agent.created', caller)) })
let next = 0
await Promise.all(
  Array.from({ length: UNITS }, async () => {
    while (next < of) {
      const from = next
      next = Math.min(of, from + PER_UNIT)
      const calls = Array.from({ length: next - from }, (_, n) => entriesOf(from + n))
      await ledger.commit({ entries: calls.flat() })
    }
  }),
)
await ledger.close()
await database.close()
process.stdout.write('{}\n')

/** The agent that the gateway has enrolled, and by what it judges. */
async function begun(): Promise<{ caller: Caller; judging: JudgingRules }> {
  const replay = new LedgerReplay()
  const { rows } = await listRows(database.kysely, { order: 'asc', limit: 1_000 })
  for (const row of rows) replay.apply({ ...row, detail: '', leaf: '' }, 2, row.detail)
  const state = replay.principals.get(SOMEBODY)?.states.at(-1)
  const [configDigest, configuration] = [...replay.configurations].at(-1) ?? []
  if (!state || !configuration || configDigest === undefined)
    throw new Error(`no gateway has begun this ledger, and enrolled ${SOMEBODY}`)
  const mode = { egress_dpop_mode: configuration.mode, no_downgrade: configuration.noDowngrade }
  return {
    caller: { id: SOMEBODY, revision: state.revision, thumbprint: state.thumbprints[0]?.[0] ?? '' },
    judging: { configDigest, mode, checks: [] },
  }
}

/** The rows of a call, and of a change before it where it is time. The first caller holds nothing, and is refused. */
function entriesOf(n: number): readonly LedgerEntry[] {
  const at = now - AGO_MS - LONG_MS + Math.floor((LONG_MS * n) / of)
  const place = n % CALLERS
  const changes =
    n % CHANGE_EVERY === CHANGE_EVERY - 1 ? [change(1 + (((n / CHANGE_EVERY) | 0) % (CALLERS - 2)))] : []
  const caller = callers[place] ?? somebody
  const call = { n, at, caller, model: MODELS[n % MODELS.length] ?? '' }
  if (place === 0) return [...changes, decisionOf(call, judging, LACKS_CHAT)]
  return [...changes, decisionOf(call, judging), outcomeOf(call, judging)]
}

function change(place: number): LedgerEntry {
  const { id = '', revision = 0, thumbprint = '' } = callers[place] ?? {}
  const caller = { id, revision: revision + 1, thumbprint }
  callers[place] = caller
  return changed('agent.capabilities_patched', caller)
}

/** The row that makes a state of a principal. */
function changed(action: string, { id, revision, thumbprint }: Caller): LedgerEntry {
  const capabilities = id === callers[0]?.id ? [] : ['llm.chat', ...(revision % 2 === 0 ? ['x'] : [])]
  return {
    ...{ at: now, request_id: null, principal_id: null, principal_type: null, action, status: 'success' },
    ...{ tool: null, model: null, provider: null, cert_thumbprint: null, dpop_jkt: null },
    detail: {
      ...{ subject: id, revision, capabilities, is_active: true, thumbprints: [[thumbprint, null]] },
      dpop_jkts: [],
    },
    config_digest: judging.configDigest,
  }
}
