import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import { exportLine } from '../../../../db/ledger/record/leaf.ts'
import { exitCodeOf, inspectRows } from '../../../../db/ledger/verify/inspect.ts'
import {
  BOT,
  binding,
  chainer,
  changed,
  decided,
  decidedTool,
  ended,
  loaded,
  resource,
  started,
} from '../../../support/db/history.ts'
import { exportedRows } from '../../../support/db/row-by-row.ts'

/** By hand, what a million rows cost: `VERIFY_ROWS=1000000 node test/db/ledger/verify/inspect.test.ts`. */
const ROWS = Number(process.env.VERIFY_ROWS ?? 40_000)

const FILES = ['files.use', 'llm.chat']

/** A long life of one agent: calls of both kinds, and a change of its set at every thousandth row. */
function* history(rows: number): Generator<LedgerEntry> {
  yield* [started, loaded(), changed('agent.created', 1, { capabilities: FILES })]
  yield* [resource('created', 1, { pinned: [['read', 'd1']] }), binding('created')]
  let revision = 1
  for (let row = 5; row < rows; row += 2) {
    if (row % 1_000 < 2) {
      revision += 1
      yield changed('agent.capabilities_patched', revision, { subject: BOT, capabilities: FILES })
    }
    const call = (row % 4 === 1 ? decided : decidedTool)(row, { authority: { revision } })
    yield call
    yield ended(call)
  }
}

// Lines without a file: what is measured is the verifier, and what makes them holds one row.
async function* linesOfHistory(rows: number): AsyncGenerator<string> {
  const next = chainer()
  for (const entry of history(rows)) yield exportLine(next(entry))
}

setFlagsFromString('--expose-gc')
// Proven by the flag above.
const collect = runInNewContext('gc') as () => void

t.test(
  'docs/ledger.md#recomputing: a long export is verified and recomputed in constant memory',
  async (t) => {
    const used: number[] = []
    let rows = 0
    const onRow = (): void => {
      rows += 1
      if (rows % (ROWS / 4) !== 0) return
      collect()
      used.push(process.memoryUsage().heapUsed)
    }
    const [cpu, from] = [process.cpuUsage(), performance.now()]
    const found = await inspectRows(exportedRows(linesOfHistory(ROWS)), { authority: true, onRow })
    const { user, system } = process.cpuUsage(cpu)
    const perRow = (user + system) / rows
    const rss = Math.round(process.memoryUsage().rss / 2 ** 20)
    t.comment(
      `${rows} rows, ${Math.round((rows / (performance.now() - from)) * 1000)} a second, ${perRow.toFixed(1)} µs of CPU each, RSS ${rss} MiB`,
    )
    t.equal(exitCodeOf(found), 0, JSON.stringify(found.authority?.problems))
    t.match(found, { verdict: { ok: true }, authority: { disagree: 0, open: 0, not_recomputable: {} } })
    t.ok((found.authority?.recomputed ?? 0) > rows * 0.4)
    const [first = 0] = used
    t.ok(used.length >= 4)
    t.ok(Math.max(...used) - first < 4 * 2 ** 20, `the heap held ${used.join(', ')} bytes at the quarters`)
  },
)
