import t from 'tap'
import { commitmentsIn } from '../../support/commitments.ts'
import { BOUND_MS, callOf, farStage, heldFor, TRIES, toolsOf } from '../../support/mcp/far-stage.ts'
import { tool } from '../../support/mcp/stage.ts'

const named = (length: number, of: (index: number) => unknown): object =>
  Object.fromEntries(Array.from({ length }, (_, index) => [`p${index}`, of(index)]))

/** 990 properties of four keywords, of which 200 are patterns that take long to make. */
const WIDE = {
  type: 'object',
  properties: named(990, (index) => ({
    type: 'string',
    minLength: 1,
    maxLength: 10,
    ...(index < 200 ? { pattern: '^[\\p{L}]{1,24}$' } : { title: 't' }),
  })),
}
/** Each character costs what the whole pattern costs. */
const COSTLY = { type: 'object', properties: { text: { type: 'string', pattern: '(a{1,30}){1,30}' } } }
/** One tool for each try: a schema is compiled once for its digest. */
const WIDES = Array.from({ length: TRIES }, (_, index) =>
  tool(`wide${index}`, { description: `${index}`, inputSchema: WIDE }),
)

await t.test(
  'A6: no definition holds up the others while it is read, new, unchanged or changed',
  async (t) => {
    const { stage, answer, resource } = await farStage(t)
    let version = 0
    const read = await heldFor(async () => {
      version += 1
      await answer('tools/list', toolsOf(tool('wide', { description: `${version}`, inputSchema: WIDE })))
      return stage.refresh(resource)
    })
    t.ok(read.ms <= BOUND_MS, `new and changed: ${read.ms.toFixed(1)} ms`)
    t.match(read.values[0]?.tools, [{ name: 'wide', state: 'quarantined', flags: [] }])
    const again = await heldFor(() => stage.refresh(resource))
    t.ok(again.ms <= BOUND_MS, `unchanged: ${again.ms.toFixed(1)} ms`)
    t.match(again.values[0]?.tools, read.values.at(-1)?.tools)
  },
)

await t.test('A6: no schema and no arguments hold up the others while they are judged', async (t) => {
  const { prepare, send, bot } = await farStage(
    t,
    ...WIDES,
    tool('costly', { inputSchema: COSTLY }),
    tool('any'),
  )
  const cases: readonly (readonly [string, string, string, RegExp])[] = [
    ['arguments that do not fit', 'far.wide0', '{"p300":""}', /-32602.*p300 must NOT have fewer/],
    ['a long text and its pattern', 'far.costly', `{"text":"${'a'.repeat(31_000)}"}`, /reasonable effort/],
    ['a text and its pattern', 'far.costly', `{"text":"${'a'.repeat(2_000)}"}`, /"content":\[\]/],
    ['many objects', 'far.any', `{"a":[${'{"a":1},'.repeat(95_000)}0]}`, /"content":\[\]/],
    ['many names', 'far.any', JSON.stringify(named(90_000, () => 1)), /"content":\[\]/],
    ['an escaped name', 'far.any', `{"a\\u0062":[${'{"a":1},'.repeat(95_000)}0]}`, /"content":\[\]/],
    ['too many values', 'far.any', `{"a":[${'0,'.repeat(250_000)}0]}`, /-32602.*more than 250000 values/],
    ['an unsafe integer', 'far.any', `{"a":[${'0,'.repeat(50_000)}9007199254740993]}`, /-32602.*beyond/],
  ]
  for (const [index, { name }] of WIDES.entries()) await prepare(`wide${index}`, callOf(`far.${name}`, '{}'))
  let tries = 0
  const { ms: wide, values } = await heldFor(() => send(`wide${tries++}`, bot))
  t.ok(wide <= BOUND_MS, `a large schema: ${wide.toFixed(1)} ms`)
  t.match(values[0]?.text, /"content":\[\]/)
  for (const [what, name, args, expected] of cases) {
    await prepare(what, callOf(name, args))
    const { ms, values } = await heldFor(() => send(what, bot))
    t.ok(ms <= BOUND_MS, `${what}: ${ms.toFixed(1)} ms`)
    t.match(values[0]?.text, expected, what)
  }
})

await t.test('A6: arguments are recorded and sent on as they were judged, large or small', async (t) => {
  const { stage, prepare, send, bot } = await farStage(
    t,
    tool('any', { inputSchema: { type: 'object', required: ['b'] } }),
  )
  const filler = 'x'.repeat(40_000)
  for (const [what, args] of [
    ['one', `{"b":1.0,"a":"${filler}"}`],
    ['two', `{ "a" : "${filler}","\\u0062":1}`],
  ] as const) {
    await prepare(what, callOf('far.any', args))
    t.match((await send(what, bot)).text, /"content":\[\]/, what)
  }
  await prepare('small', callOf('far.any', '{"b":1}'))
  await send('small', bot)
  await prepare('absent', callOf('far.any', `{"a":"${filler}"}`))
  t.match((await send('absent', bot)).text, /-32602.*required property 'b'/)
  await stage.close(0)
  const rows = (await stage.rows()).filter(({ detail }) => 'arguments_sha256' in detail)
  t.equal(rows.length, 4)
  const committed = await commitmentsIn(stage)
  const canonical = `{"a":"${filler}","b":1}`
  const same = rows.map(
    (row) => committed(row, 'arguments_sha256', canonical) === row.detail.arguments_sha256,
  )
  t.same(same, [true, true, false, false], 'two spellings of the same arguments')
})
