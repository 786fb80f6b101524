import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { z } from 'zod'
import { pluginCatalogue } from '../../plugins/catalogue.ts'
import { checkOrder } from '../../plugins/order.ts'

const CATALOGUE = pluginCatalogue({
  llm: z.strictObject({}),
  mcp: z.strictObject({}),
  operators: z.strictObject({}),
  people: z.strictObject({}),
  expect: z.strictObject({}),
  proofs: z.strictObject({}),
  archive: z.strictObject({}),
  telemetry: z.strictObject({}),
  notify: z.strictObject({}),
  export: z.strictObject({}),
})

/**
 * Judges files that are given by name and plugin, `shadow ` before one that only watches; what an operator's module needs
 * stands behind its name.
 */
function judge(order: readonly (readonly [file: string, plugin: string, ...needs: string[]])[]): string[] {
  const moduleNeeds = new Map(order.map(([file, , ...needs]) => [file, needs]))
  const files = order.map(([file, plugin]) => ({
    file,
    plugin: plugin.replace('shadow ', ''),
    shadow: plugin.startsWith('shadow '),
    position: { line: 2, column: 9 },
  }))
  return checkOrder({ files, catalogue: CATALOGUE, moduleNeeds }).map(
    ({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`,
  )
}

const PIN = ['10-pin.yaml', 'pin'] as const
const DPOP = ['20-dpop.yaml', 'dpop'] as const
const CAPABILITY = ['30-capability.yaml', 'capability'] as const
const AUDIT = ['40-audit.yaml', 'audit'] as const
const LLM = ['50-llm.yaml', 'llm'] as const

await t.test('the order that is shipped works, with and without checks of the operator', async (t) => {
  t.strictSame(judge([PIN, DPOP, CAPABILITY, AUDIT, LLM]), [])
  const check = ['35-check.yaml', './check.ts', 'principal', 'proof', 'demand', 'call', 'granted'] as const
  const same = ['36-check.yaml', './check.ts'] as const
  t.strictSame(judge([PIN, DPOP, CAPABILITY, check, same, AUDIT, LLM]), [])
})

await t.test('the provider list takes no part in the order', async (t) => {
  t.strictSame(judge([['05-llm.yaml', 'llm'], PIN, DPOP, CAPABILITY, AUDIT]), [])
})

await t.test('a need that is given only later names both files', async (t) => {
  t.strictSame(judge([['05-capability.yaml', 'capability'], PIN, DPOP, AUDIT]), [
    '05-capability.yaml:2:9: capability needs principal, which pin gives only later, in 10-pin.yaml; rename one so that pin comes first',
    '05-capability.yaml:2:9: capability needs proof, which dpop gives only later, in 20-dpop.yaml; rename one so that dpop comes first',
    '05-capability.yaml:2:9: capability needs token, which dpop gives only later, in 20-dpop.yaml; rename one so that dpop comes first',
  ])
  t.strictSame(judge([PIN, DPOP, ['25-audit.yaml', 'audit'], CAPABILITY]), [
    '25-audit.yaml:2:9: audit needs granted, which capability gives only later, in 30-capability.yaml; rename one so that capability comes first',
  ])
})

await t.test('a mandatory plugin that is missing stops the boot, each by name', async (t) => {
  const rest = 'pin, dpop, capability and audit can be tuned but never removed'
  for (const gone of [PIN, DPOP, CAPABILITY, AUDIT]) {
    const order = [PIN, DPOP, CAPABILITY, AUDIT, LLM].filter((file) => file !== gone)
    t.strictSame(judge(order), [`${gone[0]}:1:1: plugin ${gone[1]} is missing: restore ${gone[0]}; ${rest}`])
  }
  t.equal(judge([]).length, 4)
})

await t.test('a built-in plugin that stands twice is refused', async (t) => {
  t.strictSame(judge([PIN, ['11-pin.yaml', 'pin'], DPOP, CAPABILITY, AUDIT]), [
    '11-pin.yaml:2:9: plugin pin is there twice, in 10-pin.yaml and in 11-pin.yaml: keep one',
  ])
})

await t.test("an operator's check must come after capability and before audit", async (t) => {
  const rule = 'a module of your own must come after capability and before audit'
  t.strictSame(judge([PIN, DPOP, ['25-check.yaml', './check.ts'], CAPABILITY, AUDIT]), [
    `25-check.yaml:2:9: ./check.ts: ${rule}; rename 25-check.yaml so that it comes after 30-capability.yaml`,
  ])
  t.strictSame(judge([PIN, DPOP, CAPABILITY, AUDIT, ['45-check.yaml', './check.ts', 'principal']]), [
    `45-check.yaml:2:9: ./check.ts: ${rule}; rename 45-check.yaml so that it comes before 40-audit.yaml`,
  ])
})

await t.test('a need that nothing gives is refused', async (t) => {
  t.strictSame(judge([PIN, DPOP, CAPABILITY, ['35-check.yaml', './check.ts', 'body'], AUDIT]), [
    '35-check.yaml:2:9: ./check.ts needs body, which no plugin gives',
  ])
})

await t.test('every plugin that can never be removed is shipped with the file that restores it', (t) => {
  const shipped = Object.values(CATALOGUE).flatMap((row) => ('file' in row ? [row.file] : []))
  t.equal(shipped.length, 4)
  for (const file of shipped) t.ok(existsSync(join(import.meta.dirname, '../../plugins/config', file)), file)
  t.end()
})

await t.test(
  'a policy that watches may stand beside the one that judges, and no second of either',
  async (t) => {
    const [judging, watching] = [['35-a.yaml', 'policy'] as const, ['36-b.yaml', 'shadow policy'] as const]
    t.strictSame(judge([PIN, DPOP, CAPABILITY, judging, watching, AUDIT]), [])
    t.match(judge([PIN, DPOP, CAPABILITY, watching, judging, ['37-c.yaml', 'shadow policy'], AUDIT]), [
      /^37-c.yaml:2:9: plugin policy is there twice, in 36-b.yaml and in 37-c.yaml/,
    ])
  },
)
