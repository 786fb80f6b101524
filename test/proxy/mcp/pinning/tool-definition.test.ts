import fc from 'fast-check'
import t from 'tap'
import type { McpTool } from '../../../../db/mcp/tools.ts'
import type { JudgedTool, ToolCandidate, ToolJudgement } from '../../../../proxy/mcp/aside/messages.ts'
import { judgeTool, judgeTools } from '../../../../proxy/mcp/pinning/tool-definition.ts'
import { SkippedTools } from '../../../../proxy/mcp/upstream/tools.ts'

const TOOL = {
  name: 'a',
  description: 'd',
  inputSchema: { type: 'object', properties: { x: { type: 'string' } } },
}

const judgement = (text: string): ToolJudgement =>
  judgeTool({ text, pinned: null, known: null, earlierKnown: null })
function judged(text: string): JudgedTool {
  const found = judgement(text)
  if ('odd' in found) throw new Error(found.odd)
  return found
}
const read = (...values: readonly Record<string, unknown>[]): readonly JudgedTool[] =>
  values.map((value) => judged(JSON.stringify(value)))
const judgeAll = (
  text: string,
  known: readonly McpTool[],
  judge: (asked: ToolCandidate) => ToolJudgement = judgeTool,
) => judgeTools({ tools: [{ name: 'a', text }], skipped: new SkippedTools() }, known, judge)
const digestOf = (value: Record<string, unknown>): string | undefined => read(value)[0]?.digest

t.test('threat 17: the digest covers the whole definition', async (t) => {
  const digest = digestOf(TOOL)
  t.match(digest, /^[0-9a-f]{64}$/)
  for (const change of [
    { name: 'b' },
    { title: 't' },
    { description: 'D' },
    { description: 'd\u200b' },
    { inputSchema: { type: 'object' } },
    { outputSchema: { type: 'object' } },
    { annotations: { readOnlyHint: true } },
    { _meta: { a: 1 } },
    { icons: [] },
    { execution: { taskSupport: 'optional' } },
    { Description: 'evil' },
    { vendor: 1 },
  ]) {
    t.not(digestOf({ ...TOOL, ...change }), digest, JSON.stringify(change))
  }
  t.not(digestOf({ ...TOOL, title: null }), digest, 'a field that is there is not one that is absent')
})

t.test('the digest does not depend on the order of members (RFC 8785)', async () => {
  const reversed = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .map(([name, inner]) => [name, reversed(inner)]),
    )
  }
  // JSON as it comes off the wire: that generator also makes what JSON cannot say.
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), fc.jsonValue(), (extra, hints) => {
      const value = JSON.parse(JSON.stringify({ ...TOOL, annotations: { hints }, outputSchema: { extra } }))
      return digestOf(value) === digestOf(reversed(value) as Record<string, unknown>)
    }),
  )
})

t.test('a definition keeps its text as it was written', async (t) => {
  const text = `{ "name":"a", "x-unknown": 1.0, "inputSchema": {"type":"object"} }`
  t.match(await judgeAll(text, []), [{ name: 'a', text, news: { flags: [] } }])
})

t.test(
  'a tool that cannot be used is odd, with nothing in the sentence that the upstream wrote freely',
  async (t) => {
    const { name: _, ...nameless } = TOOL
    const oddity = (value: object) => judgement(JSON.stringify(value))
    t.same(oddity(nameless), { odd: 'it has no name' })
    for (const name of ['', 1]) t.same(oddity({ ...TOOL, name }), { odd: 'it has no name' })
    for (const name of ['a b', 'a\nb', 'é', 'a\u200b', 'rеad', '\u007f'])
      t.same(oddity({ ...TOOL, name }), { odd: 'its name has characters besides visible ASCII' }, name)
    t.same(oddity({ ...TOOL, name: 'x'.repeat(129) }), { odd: 'its name is longer than 128 characters' })
    for (const name of ['getUser', 'DATA_EXPORT_v2', 'admin.tools.list', 'a/b:c-d', 'x'.repeat(128)]) {
      t.match(read({ ...TOOL, name }), [{ news: { flags: [] } }], name)
    }
    const union = { anyOf: [{ type: 'object' }, { type: 'null' }] }
    for (const inputSchema of [
      undefined,
      null,
      true,
      [],
      {},
      { type: 'string' },
      { type: ['object'] },
      union,
    ])
      t.match(oddity({ ...TOOL, inputSchema }), { odd: /inputSchema/ }, JSON.stringify(inputSchema))
    t.match(oddity({ ...TOOL, inputSchema: { ...union, type: 'object' } }), { digest: /./ })
  },
)

t.test('T14: a definition that two readers could take for two tools is refused', async (t) => {
  const twice = '{"name":"a","description":"evil","description":"good","inputSchema":{"type":"object"}}'
  t.throws(() => judged(twice), /not unambiguous JSON$/)
  const surrogate = '{"name":"a","description":"\\ud800","inputSchema":{"type":"object"}}'
  t.throws(() => judged(surrogate), /not unambiguous JSON$/)
  const deep = `{"name":"a","inputSchema":{"type":"object","x":${'['.repeat(20_000)}${']'.repeat(20_000)}}}`
  t.throws(() => judged(deep), /not unambiguous JSON$/)
  const icons = `{"name":"a","icons":${'['.repeat(20_000)}${']'.repeat(20_000)},"inputSchema":{"type":"object"}}`
  t.throws(() => judged(icons), /not unambiguous JSON$/)
})

t.test('A6: a definition that is as it was is not judged again', async (t) => {
  const text = JSON.stringify(TOOL)
  const { digest } = judged(text)
  const approved = { state: 'approved', pending_definition: null, pending_digest: null } as const
  const row = {
    ...{ resource_id: 'r', name: 'a', flags: [], changed_at: null, pinned_at: '', definition: text, digest },
    ...{ digest_is_whole: true, pending_is_whole: true },
    ...approved,
  }
  const asked: string[] = []
  const judge = (tool: ToolCandidate): ToolJudgement => {
    asked.push(tool.text)
    return judgeTool(tool)
  }
  const read = async (known: McpTool, listed: string) => (await judgeAll(listed, [known], judge))[0]
  t.match(await read(row, text), { name: 'a', text, digest, news: null })
  t.same(asked, [], 'the approved one')
  const other = JSON.stringify({ ...TOOL, description: 'e' })
  const pending = { pending_definition: other, pending_digest: judged(other).digest }
  const waiting = { ...row, ...pending, state: 'quarantined' } as const
  t.match(await read(waiting, other), { digest: pending.pending_digest, news: null })
  t.same(asked, [], 'the one that waits')
  const { name, ...members } = TOOL
  const respelt = JSON.stringify({ ...members, name })
  t.match(await read(row, respelt), { digest, news: null })
  t.same(asked, [respelt], 'another text of the same digest: no flags are looked for')
  t.match(await read(waiting, text), { digest, news: { flags: [], changes: [] } }, 'the approved one again')
  t.match(await read({ ...row, state: 'gone' }, text), { digest, news: { flags: [] } }, 'it came back')
})

t.test(
  'H1b: a pin of an earlier version holds while the members that it covers are as they were',
  async (t) => {
    const six = judged(JSON.stringify(TOOL)).digest
    const pinned = JSON.stringify({ ...TOOL, _meta: { a: 1 } })
    const row: McpTool = {
      ...{ resource_id: 'r', name: 'a', flags: [], changed_at: null, pinned_at: '', state: 'approved' },
      ...{ definition: pinned, digest: six, pending_definition: null, pending_digest: null },
      ...{ digest_is_whole: false, pending_is_whole: false },
    }
    const read = async (more: object, known: McpTool = row) => {
      const text = JSON.stringify({ ...TOOL, ...more })
      return (await judgeAll(text, [known]))[0]?.news
    }
    t.equal(await read({ _meta: { a: 1 } }), null, 'the very text')
    t.equal(await read({ _meta: { a: 2 }, execution: { taskSupport: 'forbidden' } }), null)
    t.ok(await read({ description: 'evil' }))
    t.ok(await read({ Description: 'evil' }), 'no such pin covers a member that folds onto a known one')
    t.ok(await read({ annotations: { ReadOnlyHint: true } }))
    t.ok(await read({ _meta: { a: 2 } }, { ...row, digest_is_whole: true }), 'a pin of today covers all')
    const waits = { state: 'quarantined', pending_definition: pinned, pending_digest: six } as const
    t.ok(await read({ _meta: { a: 1 } }, { ...row, ...waits }), 'what waits by such a digest is read anew')
  },
)
