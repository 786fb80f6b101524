import {
  ListPromptsResultSchema,
  ListResourcesResultSchema,
  ListResourceTemplatesResultSchema,
  ListToolsResultSchema,
} from '@modelcontextprotocol/sdk/types.js'
import t from 'tap'
import {
  hasModernOutput,
  soundItem,
  soundTool,
  unsoundMembers,
} from '../../../../proxy/mcp/protocol/sound-items.ts'

const ODD = [undefined, null, 7, true, 'x', '', [], {}, [null], ['x'], [{}], { a: 1 }, -1, '2026-01-01']
const MEMBERS = [
  ...['title', 'description', 'icons', '_meta', 'annotations', 'mimeType', 'size', 'arguments', 'execution'],
  'outputSchema',
]
const inner = (value: unknown): readonly object[] => [
  {
    annotations: { title: value, readOnlyHint: value, audience: value, priority: value, lastModified: value },
  },
  { icons: [value, { src: value }, { src: 'x', sizes: value, mimeType: value, theme: value }] },
  { arguments: [value, { name: value }, { name: 'x', required: value, description: value, title: value }] },
  { execution: { taskSupport: value } },
]
const oddities = ODD.flatMap((value) => [
  ...MEMBERS.map((member) => ({ [member]: value })),
  ...inner(value),
  { name: value },
  { uri: value },
  { uriTemplate: value },
])
const itemsOf = (list: string, sound: object): unknown[] =>
  oddities.flatMap((odd) => {
    const written = JSON.parse(JSON.stringify({ ...sound, ...odd }))
    return soundItem(written, list) ?? []
  })

t.test('whatever odd members a server writes, the official client reads the list', async (t) => {
  const lists = [
    ['prompts', { name: 'a' }, ListPromptsResultSchema],
    ['resources', { name: 'a', uri: 'file:///a' }, ListResourcesResultSchema],
    ['resourceTemplates', { name: 'a', uriTemplate: 'file:///{a}' }, ListResourceTemplatesResultSchema],
  ] as const
  for (const [list, sound, schema] of lists) {
    const items = itemsOf(list, sound)
    t.ok(items.length > oddities.length / 2)
    t.equal(schema.safeParse({ [list]: items }).error, undefined, list)
    for (const odd of [null, 'x', [], {}, { name: '' }, { uri: 'x', uriTemplate: 'x' }])
      t.equal(soundItem(odd, list), null, `${list} ${JSON.stringify(odd)}`)
  }
  const outputs = oddities.filter((odd) => !('outputSchema' in odd) && !('name' in odd))
  const tools = outputs.map((odd) =>
    soundTool(JSON.parse(JSON.stringify({ name: 'a', inputSchema: { type: 'object' }, ...odd }))),
  )
  t.equal(ListToolsResultSchema.safeParse({ tools }).error, undefined)
})

t.test('what is sound goes on as it is, and what is left out is named', async (t) => {
  const annotations = { title: 'A', readOnlyHint: true }
  const tool = { name: 'a', title: 'A', icons: [{ src: 'x' }], annotations, inputSchema: { type: 'object' } }
  t.strictSame(soundTool(tool), tool)
  t.same(unsoundMembers(tool), [])
  const odd = { ...tool, title: null, annotations: { ...annotations, readOnlyHint: 'yes' }, vendor: 1 }
  t.same(unsoundMembers(odd), ['title', 'annotations'])
  t.strictSame(soundTool(odd), {
    ...{ name: 'a', icons: tool.icons, annotations: { title: 'A' }, inputSchema: tool.inputSchema },
  })
})

t.test('a boolean as the schema of a property is an object to clients of the older revisions', async (t) => {
  const inputSchema = { type: 'object', properties: { a: true, b: false, c: { type: 'string' } } }
  const listed = soundTool({ name: 'a', inputSchema })
  t.match(listed, { inputSchema: { properties: { a: {}, b: { not: {} }, c: { type: 'string' } } } })
  t.equal(ListToolsResultSchema.safeParse({ tools: [listed] }).error, undefined)
})

t.test('an output schema that only the newest revision has is known, and any other is not', async (t) => {
  const isRead = (outputSchema: unknown) => {
    const tools = [soundTool({ name: 'a', inputSchema: { type: 'object' }, outputSchema })]
    return ListToolsResultSchema.safeParse({ tools }).success
  }
  const object = { type: 'object' }
  for (const [outputSchema, isModern] of [
    [object, false],
    [{ ...object, properties: { a: true, b: { type: 'string' } }, required: ['a'] }, false],
    [{ ...object, anyOf: [{}] }, false],
    [{}, true],
    [{ type: 'array', items: {} }, true],
    [{ type: ['object', 'null'] }, true],
    [{ anyOf: [object] }, true],
    [{ $ref: '#/$defs/a', $defs: { a: object } }, true],
    [{ ...object, properties: { a: 1 } }, true],
    [{ ...object, properties: [] }, true],
    [{ ...object, properties: null }, true],
    [{ ...object, required: 'a' }, true],
    [{ ...object, required: [1] }, true],
  ] as const) {
    const tool = soundTool({ name: 'a', outputSchema })
    t.equal(hasModernOutput(tool), isModern, JSON.stringify(outputSchema))
    t.equal(isRead(outputSchema), !isModern, 'as the official client reads it')
  }
  t.equal(hasModernOutput({ name: 'a' }), false)
})
