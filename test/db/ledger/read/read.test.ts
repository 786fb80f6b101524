import t from 'tap'
import type { RowFilter } from '../../../../db/ledger/read/find.ts'
import { exportedLines, listRows, verifyDatabase } from '../../../../db/ledger/read/read.ts'
import { exportedRows, verifyRows } from '../../../support/db/row-by-row.ts'
import {
  AT,
  appendCalls,
  entry,
  open,
  reader,
  rowsOf,
  scratchDatabase,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

t.test(
  'docs/protocol.md#audit-api the audit list shows the columns of docs/ledger.md#row, detail as an object, result in rows of the MCP path',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await ledger.commit({
      entries: [entry({ detail: { reason: 'x' } }), entry({ action: 'mcp_tools_call', status: 'denied' })],
    })
    await ledger.close()
    const { kysely } = await reader(t, file)
    const { rows, next_cursor: next } = await listRows(kysely, { order: 'asc' })
    t.equal(next, null)
    const [first, second] = rows
    t.same(Object.keys(first ?? {}).sort(), [
      ...[
        'action',
        'cert_thumbprint',
        'config_digest',
        'detail',
        'dpop_jkt',
        'model',
        'prev_hash',
        'principal_id',
        'principal_type',
      ],
      ...['provider', 'recorded_at', 'request_id', 'row_hash', 'seq', 'status', 'stream', 'tool', 'version'],
    ])
    t.same(first?.detail, { reason: 'x' })
    t.match(second, { seq: 2, status: 'denied', result: 'denied' })
  },
)

t.test(
  'docs/protocol.md#audit-api the audit list is filtered by principal, action, status, request and time',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await ledger.commit({
      entries: [
        entry({ at: AT, principal_id: 'acme::a', request_id: 'r1' }),
        entry({ at: AT + 1_000, principal_id: 'acme::b', request_id: 'r2', status: 'denied' }),
        entry({ at: AT + 2_000, principal_id: 'acme::a', request_id: 'r3', action: 'mcp_tools_list' }),
      ],
    })
    await ledger.close()
    const { kysely } = await reader(t, file)
    const found = async (filter: RowFilter) => (await listRows(kysely, filter)).rows.map(({ seq }) => seq)
    t.same(await found({}), [3, 2, 1], 'newest first')
    t.same(await found({ order: 'asc' }), [1, 2, 3])
    t.same(await found({ principal: 'acme::a' }), [3, 1])
    t.same(await found({ principal: 'acme::a', action: 'mcp_tools_list' }), [3])
    t.same(await found({ status: 'denied' }), [2])
    t.same(await found({ request_id: 'r1' }), [1])
    t.same(await found({ since: AT + 1_000 }), [3, 2])
    t.same(await found({ until: AT + 1_000 }), [1])
    t.same(await found({ principal: "' or 1=1 --" }), [])
  },
)

t.test(
  'docs/protocol.md#audit-api pages of the audit list meet without a gap or a row twice, also where the clock stood still',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    for (let row = 0; row < 11; row += 1)
      await ledger.commit({ entries: [entry({ at: AT + Math.floor(row / 4) })] })
    await ledger.close()
    const { kysely } = await reader(t, file)
    for (const order of ['asc', 'desc'] as const) {
      const seen: number[] = []
      let cursor: string | null = null
      do {
        const page = await listRows(kysely, { order, limit: 3, ...(cursor === null ? {} : { cursor }) })
        seen.push(...page.rows.map(({ seq }) => seq))
        cursor = page.next_cursor
      } while (cursor !== null)
      const all = Array.from({ length: 11 }, (_, index) => index + 1)
      t.same(seen, order === 'asc' ? all : all.reverse())
    }
    for (const cursor of ['', 'x', 'W10', Buffer.from('["a",1,2]').toString('base64url')]) {
      await t.rejects(listRows(kysely, { cursor }), { name: 'RangeError' })
    }
  },
)

t.test(
  'docs/ledger.md#row: an export verifies from its columns alone, and equals the database row for row',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await appendCalls(ledger, 400)
    await ledger.close()
    const { kysely } = await reader(t, file)
    const rows = []
    for await (const row of exportedRows(withoutLf(exportedLines(kysely)))) rows.push(row)
    t.same(
      rows.map((row) => ({ ...row, line: undefined, v: undefined, result: undefined })),
      rowsOf(file).map((row) => ({ ...row, line: undefined, v: undefined, result: undefined })),
    )
    t.match(await verifyRows(exportedRows(withoutLf(exportedLines(kysely)))), { ok: true, rows: 800 })
    t.match(await verifyDatabase(kysely), { ok: true, rows: 800 })
    withRaw(file, (db) =>
      db.exec("drop trigger audit_rows_update; update audit_rows set status = 'x' where seq = 700"),
    )
    t.match(await verifyDatabase(kysely), { ok: false, first_bad: { seq: 700 } })
    t.match(await verifyRows(exportedRows(withoutLf(exportedLines(kysely)))), {
      ok: false,
      first_bad: { seq: 700 },
    })
  },
)

async function* withoutLf(lines: AsyncIterable<string>): AsyncGenerator<string> {
  for await (const line of lines) yield line.slice(0, -1)
}
