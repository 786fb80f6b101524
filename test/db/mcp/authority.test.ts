import t from 'tap'
import { LedgerReplay } from '../../../db/ledger/authority/replay.ts'
import type { ReplayedTool } from '../../../db/ledger/authority/states.ts'
import { GENESIS_HASH } from '../../../db/ledger/record/leaf.ts'
import { resourceAuthority, snapshotOf } from '../../../db/mcp/authority.ts'
import type { McpTool } from '../../../db/mcp/tools.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import { AT, fieldsOf, toolOf } from '../../support/db/mcp-rows.ts'
import { rowOf } from '../../support/db/scratch-ledger.ts'

const RESOURCE = { ...fieldsOf('files'), resource_id: 'mcpr_files', revision: 7 }

t.test('docs/ledger.md#replay: the snapshot of a resource says all its tools, in rows that add up', (t) => {
  const waiting = { state: 'quarantined', pending_definition: '{}', pending_digest: 'd2' } as const
  const never = { ...waiting, definition: null, digest: null, pinned_at: null } as const
  const tools: readonly McpTool[] = [
    ...Array.from({ length: 100 }, (_, index) => toolOf('files', `t${index}`)),
    toolOf('files', 'changed', waiting),
    { ...toolOf('files', 'fresh'), ...never },
    toolOf('files', 'lost', { state: 'gone' }),
  ]
  const details = snapshotOf(RESOURCE, tools)
  t.equal(details.length, 2)
  const replay = new LedgerReplay()
  for (const detail of details) {
    const { detail: text } = rowOf(
      noteEntry({ action: 'authority.snapshot', detail }, AT, 'c'),
      1,
      GENESIS_HASH,
    )
    t.ok(text.length < 60 * 1024)
    const row = { action: 'authority.snapshot', status: 'success' } as Parameters<LedgerReplay['apply']>[0]
    t.equal(replay.apply(row, 2, JSON.parse(text)), null)
  }
  const known = replay.resources.get('mcpr_files')
  t.match(known?.states, [{ revision: 7, requiredCapability: 'mcp.tools.call', enabled: true }])
  const state = (name: string): ReplayedTool | undefined => known?.tools.get(name)
  t.same(state('t99'), { state: 'approved', digest: 'd1', pending: null })
  t.same(state('changed'), { state: 'quarantined', digest: 'd1', pending: 'd2' })
  t.same(state('fresh'), { state: 'quarantined', digest: null, pending: 'd2' })
  t.match(state('lost'), { state: 'gone', digest: 'd1' })
  t.equal(known?.tools.size, tools.length)
  t.same(snapshotOf(RESOURCE, []), [resourceAuthority(RESOURCE, 7)], 'also of one without tools')
  t.end()
})
