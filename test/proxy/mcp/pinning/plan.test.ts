import fc from 'fast-check'
import t from 'tap'
import type { McpTool } from '../../../../db/mcp/tools.ts'
import { type PinPlan, planPins } from '../../../../proxy/mcp/pinning/plan.ts'
import { judgeTool, judgeTools } from '../../../../proxy/mcp/pinning/tool-definition.ts'
import { type RawTool, SkippedTools } from '../../../../proxy/mcp/upstream/tools.ts'

const AT = Date.UTC(2026, 0, 1)

function listed(descriptions: Readonly<Record<string, string>>, more: object = {}): readonly RawTool[] {
  return Object.entries(descriptions).map(([name, description]) => {
    const value = { name, description, inputSchema: { type: 'object' }, ...more }
    return { name, text: JSON.stringify(value) }
  })
}

async function read(
  known: readonly McpTool[],
  tools: readonly RawTool[],
  first = false,
  unread: ReadonlySet<string> | null = null,
): Promise<PinPlan> {
  const judged = await judgeTools({ tools, skipped: new SkippedTools() }, known, judgeTool)
  return planPins({ resourceId: 'r', known, listed: judged, unread, first, at: AT })
}

const digestsOf = async (tools: readonly RawTool[]): Promise<ReadonlyMap<string, string>> =>
  new Map(
    (await judgeTools({ tools, skipped: new SkippedTools() }, [], judgeTool)).map(({ name, digest }) => [
      name,
      digest,
    ]),
  )

function after(known: readonly McpTool[], plan: PinPlan): readonly McpTool[] {
  const rows = new Map([...known, ...plan.tools].map((row) => [row.name, row]))
  return [...rows.values()]
}

const pinned = after([], await read([], listed({ a: 'one', b: 'two' }), true))
const rowOf = (rows: readonly McpTool[], name: string) => rows.find((row) => row.name === name)

t.test('threat 17: the first read approves all tools, a later one none', async (t) => {
  t.match(rowOf(pinned, 'a'), {
    resource_id: 'r',
    state: 'approved',
    pending_definition: null,
    pinned_at: '2026-01-01T00:00:00.000Z',
    changed_at: null,
  })
  const plan = await read(pinned, listed({ a: 'one', b: 'two', c: 'new' }))
  const digest = (await digestsOf(listed({ c: 'new' }))).get('c') ?? ''
  t.match(plan.quarantined, [
    { tool: 'c', changes: ['new tool', /^name: /, /^description: added "new"$/], digest },
  ])
  t.match(plan.tools, [
    { name: 'c', state: 'quarantined', definition: null, digest: null, pending_digest: digest },
  ])
  const again = after(pinned, plan)
  t.same(await read(again, listed({ a: 'one', b: 'two', c: 'new' })), { tools: [], quarantined: [] })
})

t.test(
  'of a list that was read in part, what was not seen stays as it is, and what was skipped goes',
  async (t) => {
    const plan = await read(pinned, listed({ a: 'evil' }), false, new Set())
    t.match(plan.tools, [{ name: 'a', state: 'quarantined' }])
    t.equal(plan.tools.length, 1, 'b may be on the page that failed')
    t.match((await read(pinned, [], false, new Set(['b']))).tools, [{ name: 'b', state: 'gone' }])
  },
)

t.test('threat 17: a changed definition is quarantined beside what was approved', async (t) => {
  const plan = await read(pinned, listed({ a: 'evil', b: 'two' }))
  t.equal(plan.tools.length, 1)
  const before = rowOf(pinned, 'a')
  t.match(plan.tools[0], { state: 'quarantined', definition: before?.definition, digest: before?.digest })
  t.match(plan.tools[0]?.pending_definition, /evil/)
  t.same(plan.quarantined[0]?.changes, ['description: "one" → "evil"'])

  const rows = after(pinned, plan)
  t.same((await read(rows, listed({ a: 'evil', b: 'two' }))).quarantined, [], 'the same change is told once')
  t.match(
    (await read(rows, listed({ a: 'worse', b: 'two' }))).quarantined,
    [{ tool: 'a' }],
    'another one again',
  )
  const back = await read(rows, listed({ a: 'one', b: 'two' }))
  t.match(back.tools, [{ state: 'approved', pending_definition: null, pending_digest: null }])
  t.same(back.quarantined, [])
})

t.test(
  'H1b: what the digest of an earlier version leaves out changes nothing, and that of today leaves out nothing',
  async (t) => {
    const now = listed({ a: 'one', b: 'two' }, { _meta: { x: 1 } })
    const earlier = pinned.map((row) => ({ ...row, digest_is_whole: false }))
    const beside = await read(earlier, now)
    t.same(beside.quarantined, [])
    t.match(beside.tools, [
      { state: 'approved', digest_is_whole: false, pending_digest: /^[0-9a-f]{64}$/ },
      {},
    ])
    t.same((await read(beside.tools, now)).tools, [], 'told once')
    const gone = earlier.map((row) => ({ ...row, state: 'gone' as const }))
    const back = (await read(gone, now)).tools
    t.match(back, [{ state: 'approved', digest_is_whole: false }, { state: 'approved' }])
    t.same(
      back.map(({ definition }) => definition),
      pinned.map(({ definition }) => definition),
      'as it was approved, not as it is listed now',
    )
    t.match((await read(pinned, now)).quarantined, [{ tool: 'a', changes: [/^_meta: added/] }, { tool: 'b' }])
  },
)

t.test('H1b: a definition with a member that folds onto a known one is approved by no read', async (t) => {
  const plan = await read([], listed({ a: 'one' }, { 'de\u017fcription': 'evil' }), true)
  t.match(plan.tools, [{ state: 'quarantined', digest: null, flags: ['folded_member:de\u017fcription'] }])
  t.match(plan.quarantined, [{ tool: 'a' }])
})

t.test('a tool that vanished is gone, and comes back approved only unchanged', async (t) => {
  const plan = await read(pinned, listed({ a: 'one' }))
  t.match(plan.tools, [{ name: 'b', state: 'gone', digest: rowOf(pinned, 'b')?.digest }])
  const rows = after(pinned, plan)
  t.same((await read(rows, listed({ a: 'one' }))).tools, [], 'it vanishes once')
  t.match((await read(rows, listed({ a: 'one', b: 'two' }))).tools, [{ name: 'b', state: 'approved' }])
  const changed = await read(rows, listed({ a: 'one', b: 'evil' }))
  t.match(changed.tools, [{ name: 'b', state: 'quarantined' }])
  t.match(changed.quarantined, [{ tool: 'b' }])
})

t.test('a tool that was never approved does not become so by vanishing', async (t) => {
  const fresh = after(pinned, await read(pinned, listed({ a: 'one', b: 'two', c: 'x' })))
  const gone = after(fresh, await read(fresh, listed({ a: 'one', b: 'two' })))
  t.match(rowOf(gone, 'c'), { state: 'gone', digest: null })
  const back = await read(gone, listed({ a: 'one', b: 'two', c: 'x' }))
  t.match(back.tools, [{ name: 'c', state: 'quarantined' }])
})

t.test(
  'property: after any history nothing is approved but what the first read saw, and a read twice is a read once',
  async () => {
    const list = fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.constantFrom('1', '2', '3'))
    await fc.assert(
      fc.asyncProperty(fc.array(list, { minLength: 1, maxLength: 8 }), async (history) => {
        const [start = {}, ...later] = history
        const first = await digestsOf(listed(start))
        let rows = after([], await read([], listed(start), true))
        for (const descriptions of later) {
          const now = listed(descriptions)
          const digests = await digestsOf(now)
          rows = after(rows, await read(rows, now))
          const again = await read(rows, now)
          if (again.tools.length + again.quarantined.length > 0) return false
          for (const { name, state, digest } of rows) {
            const lists = digests.get(name)
            if ((state === 'gone') !== (lists === undefined)) return false
            if ((state === 'approved') !== (lists !== undefined && lists === first.get(name))) return false
            if (digest !== (first.get(name) ?? null)) return false
          }
        }
        return true
      }),
    )
  },
)
