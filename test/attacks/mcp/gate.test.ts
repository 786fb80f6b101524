import fc from 'fast-check'
import t from 'tap'
import { called, filesStage, mcpStage, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'

// Capabilities that anything here demands, and two that nothing does.
const CAPABILITIES = [
  'mcp.tools.list',
  'mcp.tools.call',
  'a.use',
  'a.write',
  'b.use',
  'http.get',
  'llm.chat',
  'x.y',
]
const TOOLS = ['a.read', 'a.write', 'b', 'b.b', 'c.only', 'c', 'http.get', 'a.none', 'none']

async function stageOfThree(t: Parameters<typeof mcpStage>[0], enforced: boolean) {
  const stage = await mcpStage(t, {
    files: { '60-mcp.yaml': `plugin: mcp\nlist: callable\nenforce_tools_call: ${enforced}\n` },
  })
  const a = await toolServer(t, [tool('read'), tool('write')])
  const b = await toolServer(t, [tool('b'), tool('other')])
  const c = await toolServer(t, [tool('only')])
  const resources = {
    a: await stage.register('a', a, {
      required_capability: 'a.use',
      tool_capabilities: { write: 'a.write' },
    }),
    b: await stage.register('b', b, { required_capability: 'b.use' }),
    c: await stage.register('c', c),
  }
  return { stage, resources, servers: [a, b, c] }
}

/** What the specification says a principal may call, worked out once more by itself. */
function mayCall(
  name: string,
  held: readonly string[],
  bound: readonly string[],
  enforced: boolean,
): boolean {
  if (held.length === 0 || (enforced && !held.includes('mcp.tools.call'))) return false
  if (name === 'http.get') return held.includes('http.get')
  const demands: Readonly<Record<string, readonly [string, string | null]>> = {
    'a.read': ['a', 'a.use'],
    'a.write': ['a', 'a.write'],
    b: ['b', 'b.use'],
    'b.b': ['b', 'b.use'],
    'c.only': ['c', null],
    c: ['c', null],
  }
  const demand = demands[name]
  if (demand === undefined || !bound.includes(demand[0])) return false
  return demand[1] === null || held.includes(demand[1])
}

// An alias is the same tool by a shorter name; a list shows each tool once.
const listedAs = (name: string): string => ({ b: 'b.b', c: 'c.only' })[name] ?? name

async function callable(stage: Stage, who: Parameters<Stage['callTool']>[0]): Promise<string[]> {
  const able: string[] = []
  for (const name of TOOLS) {
    // http.get is not called for real: arguments that break its schema are refused behind the gate.
    const { json } = await stage.callTool(who, name, name === 'http.get' ? { url: 1 } : {})
    if (json.result || json.error?.code === -32602) able.push(name)
  }
  return able
}

for (const enforced of [false, true]) {
  await t.test(
    `row 9: a principal calls what binding and capability allow, and is listed exactly that (enforce_tools_call: ${enforced})`,
    async (t) => {
      const { stage, resources, servers } = await stageOfThree(t, enforced)
      const bot = await stage.enroll('bot', [])
      let bindings: string[] = []
      await fc.assert(
        fc.asyncProperty(
          fc.subarray(CAPABILITIES),
          fc.subarray(['a', 'b', 'c'] as const),
          async (held, bound) => {
            for (const id of bindings) await stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${id}`)
            bindings = []
            for (const name of bound) bindings.push((await stage.bind(bot, resources[name])).binding_id)
            await stage.grant(bot, held)
            const before = servers.flatMap(called).length
            const able = await callable(stage, bot)
            const expected = TOOLS.filter((name) => mayCall(name, held, bound, enforced))
            t.same(able, expected, JSON.stringify({ held, bound }))
            t.equal(
              servers.flatMap(called).length - before,
              expected.filter((name) => name !== 'http.get').length,
            )
            const list = await stage.rpc(bot, 'tools/list')
            if (held.includes('mcp.tools.list')) {
              const names: string[] = list.json.result.tools.map(({ name }: { name: string }) => name)
              const known = names.filter((name) => name !== 'b.other')
              t.same(known.sort(), [...new Set(expected.map(listedAs))].sort())
            } else t.equal(list.json.error.code, -32005)
          },
        ),
        { numRuns: 25, endOnFailure: true },
      )
    },
  )
}

await t.test(
  'threat 5: whatever spelling a call comes in, what is judged is what is dispatched',
  async (t) => {
    const { stage, server, files, bot } = await filesStage(t, ['files.use'])
    await stage.bind(bot, files)
    const head = '"jsonrpc":"2.0","id":1'
    const read = '"method":"tools/call","params":{"name":"files.read"}'
    const bodies = [
      `{${head},${read},"params":{"name":"files.write"}}`,
      `{${head},"method":"tools/list",${read}}`,
      `{${head},"method":"tools/call","params":{"name":"files.read","name":"files.write"}}`,
      `{${head},"method":"tools/call","params":{"name":"files.read","n\\u0061me":"files.write"}}`,
      `{${head},"meth\\u006fd":"tools/call","params":{"name":"files.write"}}`,
      `{${head},"method":"tools\\u002fcall","params":{"name":"files.write"}}`,
      `{${head},"method":"tools/call","params":{"name":"files\\u002ewrite"}}`,
      `{${head},${read}} {${head},"method":"tools/call","params":{"name":"files.write"}}`,
      `{${head},${read}}\u0000`,
      `[{${head},"method":"tools/call","params":{"name":"files.write"}}]`,
      `{${head},"method":"tools/call","params":{"name":"files.write\u0000"}}`,
      `{${head},"method":"tools/call","params":{"name":"FILES.WRITE"}}`,
      `{${head},"method":"tools/call","params":{"name":" files.write"}}`,
      `{${head},"method":"tools/call","params":{"name":["files.write"]}}`,
      `{${head},"method":"tools/call","params":{"name":"files..write"}}`,
      `{${head},"method":"tools/call","params":{"name":"files.write","arguments":[]}}`,
      `{${head},"method":"tools/call","params":{"__proto__":{"name":"files.write"}}}`,
    ]
    for (const body of bodies) {
      const { json, status } = await stage.call(bot, 'POST', '/v1/mcp', {
        body,
        headers: { 'content-type': 'application/json' },
      })
      t.ok(json.error, `${status} ${JSON.stringify(body)}`)
      t.notOk(json.result)
    }
    t.same(called(server), [], 'nothing of it went upstream')
  },
)

await t.test('threat 5: headers that name another tool do not open it', async (t) => {
  const { stage, server, files, bot } = await filesStage(t, ['files.use'])
  await stage.bind(bot, files)
  for (const headers of [
    { 'mcp-name': 'files.read' },
    { 'mcp-method': 'tools/list' },
    { 'mcp-protocol-version': '2025-11-25' },
  ]) {
    const { status, json } = await stage.callTool(bot, 'files.write', {}, { modern: true, headers })
    t.equal(status, 400)
    t.equal(json.error.code, -32020)
  }
  const { json } = await stage.callTool(bot, 'files.write', {}, { modern: true })
  t.equal(json.error.code, -32005, 'and by its own name it demands its own capability')
  t.same(called(server), [])
})
