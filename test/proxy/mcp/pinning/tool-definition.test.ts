import fc from 'fast-check'
import t from 'tap'
import { readTools, type ToolDefinition } from '../../../../proxy/mcp/pinning/tool-definition.ts'

const TOOL = {
  name: 'a',
  description: 'd',
  inputSchema: { type: 'object', properties: { x: { type: 'string' } } },
}

function read(...values: readonly Record<string, unknown>[]): readonly ToolDefinition[] {
  return [...readTools(values.map((value) => ({ text: JSON.stringify(value), value })))]
}
const digestOf = (value: Record<string, unknown>): string | undefined => read(value)[0]?.digest

t.test('threat 17: the digest covers what a model and a gateway go by, and nothing else', async (t) => {
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
  ]) {
    t.not(digestOf({ ...TOOL, ...change }), digest, JSON.stringify(change))
  }
  t.equal(digestOf({ ...TOOL, _meta: { a: 1 }, icons: [] }), digest)
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
  t.match([...readTools([{ text, value: JSON.parse(text) }])], [{ name: 'a', text, flags: [] }])
  t.same(read(), [])
})

t.test(
  'a list that cannot be told apart or used is refused, with nothing in the sentence that the upstream wrote freely',
  async (t) => {
    const { name: _, ...nameless } = TOOL
    t.throws(() => read(nameless), /^tool 1 of the list has no name$/)
    for (const name of ['', 1, 'a b', 'a\nb', 'é', 'a\u200b', 'x'.repeat(129)]) {
      t.throws(() => read(TOOL, { ...TOOL, name }), /^tool 2 of the list has /, JSON.stringify(name))
    }
    for (const name of ['getUser', 'DATA_EXPORT_v2', 'admin.tools.list', 'a/b:c-d', 'x'.repeat(128)]) {
      t.equal(read({ ...TOOL, name })[0]?.name, name)
    }
    t.throws(() => read(TOOL, TOOL), /^the tool a is listed twice$/)
    for (const inputSchema of [undefined, null, true, [], {}, { type: 'string' }, { type: ['object'] }]) {
      t.throws(() => read({ ...TOOL, inputSchema }), /is not the schema of an object$/)
    }
    t.throws(() => read({ ...TOOL, description: 'x'.repeat(256 * 1024) }), /larger than 256 KiB$/)
  },
)

t.test('T14: a definition that two readers could take for two tools is refused', async (t) => {
  const twice = '{"name":"a","description":"evil","description":"good","inputSchema":{"type":"object"}}'
  t.throws(() => [...readTools([{ text: twice, value: JSON.parse(twice) }])], /not unambiguous JSON$/)
  const surrogate = '{"name":"a","description":"\\ud800","inputSchema":{"type":"object"}}'
  t.throws(() => [...readTools([{ text: surrogate, value: JSON.parse(surrogate) }])], /not unambiguous JSON$/)
  const deep = `{"name":"a","inputSchema":{"type":"object","x":${'['.repeat(20_000)}${']'.repeat(20_000)}}}`
  t.throws(() => [...readTools([{ text: deep, value: JSON.parse(deep) }])], /not unambiguous JSON$/)
})
