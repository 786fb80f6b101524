import t from 'tap'
import { type Act, error, rawMcp, result, sendJson } from '../../../support/mcp/raw-upstream.ts'
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

await t.test('threat 38 a list of tools without end is cut, and the operator is told', async (t) => {
  let page = 0
  const next = (count: number): Json => {
    page += 1
    return { tools: named(count, page * count), nextCursor: `p${page}` }
  }
  const pages = await rawMcp(
    t,
    modern(() => next(1)),
  )
  const endless = await read(t, pages)
  t.equal(pages.of('tools/list').length, 100)
  t.equal(endless.tools.length, 100)
  t.match(endless.skipped.first, [{ name: null, reason: /more than 100 pages/ }])
  const tools = await rawMcp(
    t,
    modern(() => next(500)),
  )
  const many = await read(t, tools, { maxAnswerBytes: 10_000_000 })
  t.equal(many.tools.length, 2_000)
  t.match(many.skipped.first[0], { name: /^t/, reason: 'it comes after 2000 others' })
  t.equal(many.skipped.first.length, 32, 'the first are told')
  t.equal(many.skipped.count, 48_001, 'and the number of all')
  const bytes = await rawMcp(
    t,
    modern(() => ({ ...next(1), filler: 'x'.repeat(60_000) })),
  )
  t.match(await read(t, bytes), { tools: { length: 4 }, skipped: { first: [{ reason: /too large/ }] } })
  t.equal(bytes.of('tools/list').length, 4)
})

await t.test('threat 38 a million odd tools cost a few lines', async (t) => {
  const filler = `{"tools":[${Array.from({ length: 50_000 }, () => '{}').join(',')}]}`
  const raw = await rawMcp(t, (res, told) => {
    const { id } = told
    if (told.rpc !== 'tools/list') return modern(() => ({}))(res, told)
    res.writeHead(200, { 'content-type': 'application/json' })
    res.end(`{"jsonrpc":"2.0","id":${String(id)},"result":${filler}}`)
  })
  const { tools, skipped } = await read(t, raw, { maxMessageBytes: 2_000_000, maxAnswerBytes: 2_000_000 })
  t.same(tools, [])
  t.equal(skipped.count, 10_001)
  t.equal(skipped.first.length, 32)
})

await t.test('a cursor that does not lead on ends the list with what was read', async (t) => {
  const pages: readonly (readonly [string, readonly unknown[], number, RegExp | null])[] = [
    ['it comes back', ['b', 'a', 'b'], 3, /comes back/],
    ['it does not advance', ['a', 'a', 'a'], 2, /comes back/],
    ['it is a number', [1], 1, /not text/],
    ['it is an object', [{}], 1, /not text/],
    ['it is null', [null], 1, null],
    ['it is empty', [''], 1, null],
  ]
  for (const [title, cursors, count, reason] of pages) {
    let page = -1
    const raw = await rawMcp(
      t,
      modern(() => {
        page += 1
        return { tools: named(1, page), nextCursor: cursors[page] }
      }),
    )
    const { tools, skipped, unread } = await read(t, raw)
    t.same(
      tools.map(({ name }) => name),
      named(count).map(({ name }) => name),
      title,
    )
    t.equal(unread, null)
    if (reason === null) t.equal(skipped.count, 0, title)
    else t.match(skipped.first, [{ name: null, reason }], title)
  }
  const ignorant = await rawMcp(
    t,
    modern(() => ({ tools: named(3), nextCursor: 'x' })),
  )
  t.match(await read(t, ignorant), { tools: { length: 3 }, skipped: { count: 0 } }, 'it was the whole list')
})

await t.test('pages that overlap are one list', async (t) => {
  const raw = await rawMcp(
    t,
    modern(({ message }) => {
      const { cursor } = message.params as { cursor?: string }
      return cursor === undefined ? { tools: named(3), nextCursor: 'x' } : { tools: named(3, 1) }
    }),
  )
  const { tools, skipped } = await read(t, raw)
  t.same(
    tools.map(({ name }) => name),
    ['t0', 't1', 't2', 't3'],
  )
  t.equal(skipped.count, 0)
})

await t.test('a later page that fails costs nothing of those before it', async (t) => {
  for (const act of [
    (res, { id }) => sendJson(res, error(id, -32602, 'no')),
    (res) => sendJson(res, '', 500),
    (res) => void res.socket?.destroy(),
    (res, told) => sendJson(res, result(told, { resultType: 'complete' })),
  ] satisfies Act[]) {
    const list = modern(() => ({ tools: named(2), nextCursor: 'x' }))
    const raw = await rawMcp(t, (res, told) => {
      const { cursor } = (told.message.params ?? {}) as { cursor?: string }
      return cursor === undefined ? list(res, told) : act(res, told)
    })
    const { tools, unread } = await read(t, raw)
    t.equal(tools.length, 2)
    t.match(unread, /^page 2 of its list of tools could not be read/)
  }
})

await t.test('an odd item of a list is skipped with its reason, and every other is read', async (t) => {
  const odd: readonly (readonly [Json[], string | null, RegExp])[] = [
    [[null as unknown as Json], null, /not an object/],
    [['a' as unknown as Json], null, /not an object/],
    [[{}], null, /no name/],
    [[{ name: '' }], null, /no name/],
    [[{ name: 1 }], null, /no name/],
    [[tool('a'), { ...tool('a'), title: 'x' }], 'a', /two definitions/],
    [[{ ...tool('a'), title: 'x' }, tool('a'), tool('a')], 'a', /two definitions/],
    [[{ ...tool('a'), title: 'x'.repeat(300_000) }, tool('a')], 'a', /larger than 256 KiB/],
  ]
  for (const [tools, name, reason] of odd) {
    const raw = await rawMcp(
      t,
      modern(() => ({ tools: [...named(1), ...tools, ...named(1, 1)] })),
    )
    const found = await read(t, raw, { maxMessageBytes: 1_000_000, maxAnswerBytes: 1_000_000 })
    t.same(
      found.tools.map((one) => one.name),
      ['t0', 't1'],
    )
    t.match(found.skipped, { count: 1, first: [{ name, reason }] })
  }
  const twice = await rawMcp(
    t,
    modern(() => ({ tools: [tool('a'), tool('a')] })),
  )
  t.match(await read(t, twice), {
    tools: [{ name: 'a' }],
    skipped: { first: [{ name: 'a', reason: /counts once/ }] },
  })
})

await t.test('null in place of a list is an empty one', async (t) => {
  const raw = await rawMcp(
    t,
    modern(() => ({ tools: null })),
  )
  t.match(await read(t, raw), { tools: { length: 0 }, unread: null })
})

await t.test('a list of tools that is none fails the read', async (t) => {
  const lists: Json[] = [
    {},
    { tools: { a: tool('a') } },
    { tools: 'a' },
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
