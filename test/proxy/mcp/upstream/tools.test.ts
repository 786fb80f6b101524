import t from 'tap'
import { rawMcp } from '../../../support/mcp/raw-upstream.ts'
import { failure } from '../../../support/mcp/upstream-calls.ts'
import { type Json, modern, named, read, tool } from '../../../support/mcp/upstream-servers.ts'

await t.test('all pages of tools are read', async (t) => {
  const raw = await rawMcp(
    t,
    modern(({ message }) => {
      const { cursor } = message.params as { cursor?: string }
      const page = Number(cursor ?? 0)
      return { tools: named(2, page * 2), nextCursor: page < 3 ? String(page + 1) : page === 3 ? '' : null }
    }),
  )
  const { tools } = await read(t, raw)
  t.same(
    tools.map(({ name }) => name),
    ['t0', 't1', 't2', 't3', 't4', 't5', 't6', 't7'],
  )
  t.equal(raw.of('tools/list').length, 4)
})

await t.test('threat 38 a list of tools without end is given up', async (t) => {
  let page = 0
  const next = (count: number): Json => {
    page += 1
    return { tools: named(count, page * count), nextCursor: `p${page}` }
  }
  const pages = await rawMcp(
    t,
    modern(() => next(1)),
  )
  await t.rejects(read(t, pages), failure('too_large'))
  t.equal(pages.of('tools/list').length, 100)
  const tools = await rawMcp(
    t,
    modern(() => next(500)),
  )
  await t.rejects(read(t, tools, { maxAnswerBytes: 10_000_000 }), failure('too_large'))
  t.equal(tools.of('tools/list').length, 5)
  const bytes = await rawMcp(
    t,
    modern(() => ({ ...next(1), filler: 'x'.repeat(60_000) })),
  )
  await t.rejects(read(t, bytes), failure('too_large'))
  t.equal(bytes.of('tools/list').length, 4)
})

await t.test('a cursor that comes back is a circle', async (t) => {
  let page = 0
  const raw = await rawMcp(
    t,
    modern(() => {
      page += 1
      return { tools: named(1, page), nextCursor: page % 2 === 0 ? 'a' : 'b' }
    }),
  )
  await t.rejects(read(t, raw), failure('failed'))
  t.equal(raw.of('tools/list').length, 3)
})

await t.test('a list of tools that is none fails the read', async (t) => {
  const lists: Json[] = [
    {},
    { tools: null },
    { tools: { a: tool('a') } },
    { tools: [null] },
    { tools: ['a'] },
    { tools: [{}] },
    { tools: [{ name: '' }] },
    { tools: [{ name: 1 }] },
    { tools: [tool('a'), tool('a')] },
    { tools: [], nextCursor: 1 },
    { tools: [], nextCursor: {} },
    { tools: [], resultType: 'input_required' },
  ]
  for (const list of lists) {
    const raw = await rawMcp(
      t,
      modern(() => list),
    )
    await t.rejects(read(t, raw), failure('failed'), JSON.stringify(list))
  }
})
