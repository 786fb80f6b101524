import { hash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ArchivedPage } from '../../../../db/ledger/read/archived-page.ts'
import { compareRows, type MatchingRow, type RowFilter } from '../../../../db/ledger/read/find.ts'
import { exportLine, hashOf, leafOf, type StoredRow } from '../../../../db/ledger/record/leaf.ts'
import type { StoredSegment } from '../../../../db/ledger/tree/segments.ts'
import { parseLedgerCursor, printLedgerCursor } from '../../../../db/support/cursor.ts'
import { ZipWriter } from '../../../../proxy/admin/audit/zip.ts'

const AT = Date.parse('2026-01-01T00:00:00.000Z')
const NEVER = new AbortController().signal

function rowOf(seq: number, minute: number, padding = 0): StoredRow {
  const fields = {
    ...{ stream: seq % 3 === 0 ? 'b' : 'a', seq, recorded_at: new Date(AT + minute * 60_000).toISOString() },
    ...{
      request_id: `req_${seq}`,
      principal_id: 'acme::bot',
      principal_type: 'agent',
      action: 'service.noted',
    },
    ...{ status: 'success', tool: null, model: null, provider: null, cert_thumbprint: null, dpop_jkt: null },
    ...{ config_digest: 'cd'.repeat(32), version: '1', prev_hash: 'ab'.repeat(32) },
    detail: JSON.stringify({ padding: 'x'.repeat(padding) }),
  }
  const leaf = leafOf(fields)
  return { ...fields, leaf, row_hash: hashOf(leaf) }
}

function segmentOf(folder: string, first: number, rows: readonly StoredRow[]): StoredSegment {
  const file = `${first}-${first + rows.length - 1}.zip`
  const zip = new ZipWriter(AT)
  const packed = zip.file('rows.ndjson', rows.map((row) => `${exportLine(row)}\n`).join(''))
  const bytes = Buffer.concat([packed, zip.close()])
  writeFileSync(join(folder, file), bytes)
  const times = rows.map(({ recorded_at: at }) => at).toSorted()
  return {
    ...{
      first,
      last: first + rows.length - 1,
      last_place: first + rows.length,
      sha256: hash('sha256', bytes),
    },
    ...{ state: '', file, bytes: bytes.length, since: times.at(0) ?? '', until: times.at(-1) ?? '' },
    ...{ stream: 'a', seq: 0, confirmed_at: null, removed_at: null, forgotten_at: null },
  }
}

interface Archived {
  readonly folder: string
  readonly hot: readonly StoredRow[]
  readonly segments: readonly StoredSegment[]
}

/** Reads the pages of a list to its end. */
async function allPages({ folder, hot, segments }: Archived, filter: RowFilter & { readonly limit: number }) {
  const sign = filter.order === 'asc' ? 1 : -1
  const found: MatchingRow[] = []
  let cursor: string | undefined
  for (let pages = 0; pages < 1_000; pages += 1) {
    const from = cursor === undefined ? null : parseLedgerCursor(cursor)
    const rows = hot.filter((row) => from === null || sign * compareRows(row, from) > 0)
    const asked = { ...filter, ...(cursor !== undefined && { cursor }) }
    const page = new ArchivedPage(segments, folder, asked, filter.limit + 1)
    let shown = 0
    let next: Parameters<typeof printLedgerCursor>[0] | null = null
    const source = (async function* () {
      yield* rows.toSorted((one, other) => sign * compareRows(one, other))
    })()
    for await (const row of page.rows(source, NEVER)) {
      if (shown === filter.limit) {
        next = found.at(-1) ?? null
        break
      }
      found.push(row)
      shown += 1
    }
    next ??= page.cut
    if (next === null) return { found, pages }
    cursor = printLedgerCursor(next)
  }
  throw new Error('the pages come to no end')
}

const keys = (rows: readonly MatchingRow[]) => rows.map(({ recorded_at, seq }) => `${recorded_at} ${seq}`)

async function archivedIn(t: Test): Promise<Archived & { readonly all: readonly StoredRow[] }> {
  const folder = t.testdir({})
  // Clocks are set back, replicas differ, and one segment lies within the time of another.
  const all = Array.from({ length: 160 }, (_, n) => rowOf(n + 1, n < 80 ? (n * 37) % 50 : n - ((n * 7) % 13)))
  const segments = [
    segmentOf(folder, 0, all.slice(0, 50)),
    segmentOf(folder, 50, all.slice(50, 80)),
    segmentOf(folder, 80, all.slice(80, 120)),
  ]
  // The newest row of a stream stays in the database.
  return { folder, segments, all, hot: [...all.slice(40, 42), ...all.slice(120)] }
}

t.test('pages have each row once, in order, wherever it is', async (t) => {
  const { all, ...archived } = await archivedIn(t)
  for (const order of ['asc', 'desc'] as const)
    for (const limit of [1, 7, 50, 1_000]) {
      const { found } = await allPages(archived, { order, limit })
      const expected = all.toSorted((one, other) => (order === 'asc' ? 1 : -1) * compareRows(one, other))
      t.same(keys(found), keys(expected), `${order}, ${limit} at once`)
    }
})

t.test('a page holds no more than fits in memory, and leaves nothing out', async (t) => {
  const folder = t.testdir({})
  const all = Array.from({ length: 12 }, (_, n) => rowOf(n + 1, (n * 5) % 12, 1_000_000))
  const segments = [segmentOf(folder, 0, all)]
  for (const order of ['asc', 'desc'] as const) {
    const { found, pages } = await allPages({ folder, segments, hot: [] }, { order, limit: 100 })
    t.same(
      keys(found),
      keys(all.toSorted((one, other) => (order === 'asc' ? 1 : -1) * compareRows(one, other))),
    )
    t.equal(pages, 1, order)
  }
})
