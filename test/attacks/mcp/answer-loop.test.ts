import t from 'tap'
import { BOUND_MS, callOf, farStage, heldFor, toolsOf } from '../../support/mcp/far-stage.ts'
import { tool } from '../../support/mcp/stage.ts'

const named = (length: number, of: (index: number) => unknown): object =>
  Object.fromEntries(Array.from({ length }, (_, index) => [`p${index}`, of(index)]))

await t.test('A6: no number of tools holds up the others while they are read and listed', async (t) => {
  const { answer, prepare, send, refresh, bot } = await farStage(t)
  const wordy = (version: string) =>
    toolsOf(
      ...Array.from({ length: 1_990 }, (_, index) =>
        tool(`t${index}`, { description: `${version} ${'x'.repeat(1_900)}` }),
      ),
    )
  await prepare('list', '{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
  for (const version of ['one', 'one', 'two']) {
    await answer('tools/list', wordy(version))
    const { ms, values } = await heldFor(() => refresh())
    t.match(values[0], { status: 200, text: /"last_error":null/ })
    t.ok((values[0]?.length ?? 0) > 1_990 * 1_900)
    t.ok(ms <= BOUND_MS, `read, ${version}: ${ms.toFixed(1)} ms`)
  }
  const { ms, values } = await heldFor(() => send('list', bot))
  t.match(values[0]?.text, /"tools":\[/)
  t.ok(ms <= BOUND_MS, `listed: ${ms.toFixed(1)} ms`)
})

await t.test('A6: no answer of a server holds up the others', async (t) => {
  const { answer, prepare, send, bot } = await farStage(t, tool('any'))
  await prepare('call', callOf('far.any', '{}'))
  const MIB = 1024 * 1024
  const answers: readonly (readonly [string, string])[] = [
    ['many objects', `{"content":[],"structuredContent":{"a":[${'{"a":1},'.repeat(95_000)}0]}}`],
    ['many numbers', `{"content":[],"structuredContent":{"a":[${'0,'.repeat(990_000)}0]}}`],
    ['many names', JSON.stringify({ content: [], structuredContent: named(95_000, () => 1) })],
    ['one long text', `{"content":[{"type":"text","text":"${'x'.repeat(8 * MIB)}"}]}`],
    ['one text of escapes', `{"content":[{"type":"text","text":"${'\\n'.repeat(4 * MIB)}"}]}`],
    ['one text of two bytes each', `{"content":[{"type":"text","text":"${'ä'.repeat(4 * MIB)}"}]}`],
    ['spaces', `{"content":[]${' '.repeat(8 * MIB)}}`],
  ]
  for (const [what, result] of answers) {
    for (const as of ['json', 'event'] as const) {
      await answer('tools/call', result, as)
      const { ms, values } = await heldFor(() => send('call', bot))
      t.match(values[0]?.text, /"result":/, what)
      t.ok((values[0]?.length ?? 0) >= result.length, what)
      t.ok(ms <= BOUND_MS, `${what}, as ${as}: ${ms.toFixed(1)} ms`)
    }
  }
  const error = `{"code":-1,"message":"${'x'.repeat(8 * MIB)}"}`
  await answer('tools/call', error, 'error')
  const { ms, values } = await heldFor(() => send('call', bot))
  t.match(values[0]?.text, /"error":\{"code":-1/)
  t.ok(ms <= BOUND_MS, `an error: ${ms.toFixed(1)} ms`)
})

await t.test('A6: no large call holds up the others on its way to a server', async (t) => {
  const { prepare, send, bot } = await farStage(t, tool('any'))
  const MIB = 1024 * 1024
  await prepare('long', callOf('far.any', `{"text":"${'x'.repeat(7 * MIB)}"}`))
  const { ms, values } = await heldFor(() => send('long', bot))
  t.match(values[0]?.text, /"content":\[\]/)
  t.ok(ms <= BOUND_MS, `7 MiB of text: ${ms.toFixed(1)} ms`)
})
