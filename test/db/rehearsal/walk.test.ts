import t from 'tap'
import { databaseLocation, openDatabase } from '../../../db/engine.ts'
import { isDecisionRow } from '../../../db/ledger/authority/decision.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { walkOnThread } from '../../../db/rehearsal/thread.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { allRows, BOT, changed, decided, ended, loaded, note } from '../../support/db/history.ts'
import { ALL, changes, rehearsedRows } from '../../support/db/rehearsal.ts'
import { AT } from '../../support/db/scratch-ledger.ts'

const OTHER = 'acme::other'
const NEVER = new AbortController().signal
const at = (minutes: number): string => new Date(AT + minutes * 60_000).toISOString()

/** Calls of two, a change of one now and then; some rows come later than others that were recorded after them. */
function history(): readonly LedgerEntry[] {
  const calls = Array.from({ length: 300 }, (_, n): readonly LedgerEntry[] => {
    const revision = 1 + Math.floor(n / 100)
    const when = AT + (n % 7 === 0 ? n - 20 : n) * 60_000
    const mine = decided(n, { at: when, authority: { revision } })
    const theirs = decided(1_000 + n, { at: when, principal_id: OTHER })
    const change = n > 0 && n % 100 === 0 ? [changed('agent.capabilities_patched', revision)] : []
    return [...change, note('token.issued'), mine, theirs, ended(mine), ended(theirs)]
  })
  const others = [changed('agent.created', 1), changed('agent.created', 1, { subject: OTHER })]
  return [loaded({ config_digest: 'cd'.repeat(32) }), ...others, ...calls.flat()]
}

await t.test('docs/rehearsal.md#window: a walk over a window comes to what all rows come to', async (t) => {
  const url = await databaseUrl(t.testdir())
  const database = await openDatabase(url)
  t.teardown(database.close)
  const ledger = await openLedger({ database, version: 'test' })
  await ledger.commit({ entries: history() })
  await ledger.close()
  const rows: StoredRow[] = []
  for await (const row of allRows(database)) if (!('damaged' in row)) rows.push(row)
  const told = { capabilities: ['x'] }
  const windows = [
    ...[ALL, { since: at(0), until: at(400) }, { since: at(90), until: at(110) }],
    ...[
      { since: at(-100), until: at(95) },
      { since: at(290), until: at(900) },
      { since: at(800), until: at(900) },
    ],
  ]
  for (const window of windows)
    for (const principals of [null, [BOT], [BOT, OTHER], []]) {
      const wanted = rows.filter(
        (row) => principals === null || !isDecisionRow(row) || principals.includes(row.principal_id ?? ''),
      )
      const walked = await walkOnThread(
        databaseLocation(url),
        { kind: 'rehearse', changes: changes(told), wanted: { ...window, principals } },
        NEVER,
      )
      const expected = rehearsedRows(wanted, told, window)
      t.same(walked, expected, `${window.since} to ${window.until}, ${principals?.join() ?? 'all'}`)
    }
  t.match(rehearsedRows(rows, told), { decisions: 600, unchanged: 300, disagreements: 0 }, 'it is a history')
})

await t.test(
  'docs/rehearsal.md#cost: what was kept of a principal and what was written since come to the same',
  async (t) => {
    const url = await databaseUrl(t.testdir())
    const database = await openDatabase(url)
    t.teardown(database.close)
    const ledger = await openLedger({ database, version: 'test' })
    t.teardown(() => ledger.close())
    const told = { capabilities: ['x'] }
    const rehearsed = (window: { since: string; until: string }, principals: readonly string[]) =>
      walkOnThread(
        databaseLocation(url),
        { kind: 'rehearse', changes: changes(told), wanted: { ...window, principals } },
        NEVER,
      )
    const used = (window: { since: string; until: string }) => {
      const wanted = { ...window, principals: [BOT], callsAlone: true }
      return walkOnThread(databaseLocation(url), { kind: 'usage', principal: BOT, wanted }, NEVER)
    }
    const [entries, seen] = [history(), [] as unknown[]]
    const cut = entries.length >> 1
    for (const [part, window] of [
      [entries.slice(0, cut), { since: at(0), until: at(120) }],
      [entries.slice(cut), { since: at(10), until: at(400) }],
      [[changed('agent.deactivated', 4, { is_active: false })], { since: at(20), until: at(400) }],
      [[], { since: at(-60), until: at(400) }],
    ] as const) {
      if (part.length > 0) await ledger.commit({ entries: [...part] })
      const rows: StoredRow[] = []
      for await (const row of allRows(database)) if (!('damaged' in row)) rows.push(row)
      const mine = rows.filter((row) => !isDecisionRow(row) || row.principal_id === BOT)
      // The second walk finds what the first has kept; the one about both must not.
      for (const _ of [1, 2]) t.same(await rehearsed(window, [BOT]), rehearsedRows(mine, told, window))
      t.same(await rehearsed(window, [BOT, OTHER]), rehearsedRows(rows, told, window))
      const { decisions } = rehearsedRows(mine, told, window)
      t.match(await used(window), { decisions })
      seen.push(decisions)
    }
    t.equal(new Set(seen).size, seen.length, 'each window has other calls')
  },
)
