import t from 'tap'
import { sentenceOf } from '../../../../proxy/admin/conditions/sentence.ts'
import type {
  AuthorityEffect,
  ExpectationAuthority,
  ExpectationTool,
} from '../../../../proxy/admin/conditions/truth.ts'
import { evaluateSentences } from '../../../../proxy/admin/conditions/truth.ts'
import type { ExpectationPrincipal } from '../../../../proxy/admin/operation/changes.ts'

const person = (name: string, capabilities: readonly string[], is_active = true): ExpectationPrincipal => ({
  principal_id: `acme::${name}`,
  principal_ref: `acme::${name}`,
  capabilities,
  is_active,
})
const toolOf = (resource: string, tool: string, more: Partial<ExpectationTool> = {}): ExpectationTool => ({
  ...{ resourceId: `id-${resource}`, resource, tool, name: `${resource}.${tool}` },
  ...{ enabled: true, approved: true, required_capability: null, tool_capabilities: {} },
  ...more,
})
const AUTHORITY: ExpectationAuthority = {
  principals: [
    person('a', ['x']),
    person('b', ['x', 'mcp.tools.call', 'http.get', 'llm.chat']),
    person('c', ['x'], false),
  ],
  tools: [
    toolOf('files', 'read', { required_capability: 'x' }),
    toolOf('files', 'write', { required_capability: 'x', tool_capabilities: { write: 'w' } }),
    toolOf('files', 'new', { approved: false }),
    toolOf('off', 'any', { enabled: false }),
  ],
  bound: new Set(['acme::a id-files', 'acme::b id-files', 'acme::b id-off', 'acme::c id-files']),
}
const MODES = { enforceToolsCall: false, httpGet: true }

async function holds(text: string, change?: AuthorityEffect, modes = MODES): Promise<boolean | undefined> {
  const sentence = sentenceOf(text)
  if (!sentence) throw new Error(text)
  return (await evaluateSentences([sentence], AUTHORITY, modes, change))[0]
}

t.test('docs/rehearsal.md#expectations: by the rule of the gate', async (t) => {
  for (const [text, truth] of [
    ['acme::a may call files.read', true],
    ['acme::a may not call files.read', false],
    ['acme::a may call files.write', false],
    ['acme::a may call files.new', false],
    ['acme::a may call files.*', false],
    ['acme::a may not call files.*', false],
    ['acme::a may not call off.*', true],
    ['acme::b may not call off.any', true],
    ['acme::c may not call *', true],
    ['acme::* may call files.read', false],
    ['acme::b may call http.get', true],
    ['acme::a may not call http.*', true],
    ['acme::b may use model gpt-*', true],
    ['acme::a may not use model *', true],
    ['acme::nobody may call files.read', false],
    ['acme::nobody may not call files.read', true],
    ['acme::a may call nothing.*', false],
    ['acme::a may not call nothing.*', true],
  ] as const)
    t.equal(await holds(text), truth, text)
  const enforced = { ...MODES, enforceToolsCall: true }
  t.equal(await holds('acme::a may call files.read', undefined, enforced), false)
  t.equal(await holds('acme::b may call files.read', undefined, enforced), true)
  t.equal(await holds('acme::b may call http.get', undefined, { ...MODES, httpGet: false }), false)
})

t.test('as a change would make it', async (t) => {
  const laid = (more: object): AuthorityEffect => ({
    gives: null,
    laid: { principals: new Map(), resources: new Map(), bindings: new Map(), settings: {}, ...more },
  })
  const approved: AuthorityEffect = { laid: null, gives: { resourceId: 'id-files', tool: 'new' } }
  t.equal(await holds('acme::a may call files.new', approved), true)
  const back: AuthorityEffect = {
    laid: null,
    gives: { principal: { principal_id: 'acme::c', is_active: true } },
  }
  t.equal(await holds('acme::c may call files.read', back), true)
  const made: AuthorityEffect = {
    laid: null,
    gives: { principal: { principal_id: 'acme::d', capabilities: ['llm.chat'] } },
  }
  t.equal(await holds('acme::d may use model *', made), true)
  const write = laid({ principals: new Map([['acme::a', { capabilities: ['w'] }]]) })
  t.equal(await holds('acme::a may call files.write', write), true)
  t.equal(await holds('acme::a may call files.read', write), false)
  const out = laid({ principals: new Map([['acme::a', { isActive: false }]]) })
  t.equal(await holds('acme::a may call files.read', out), false)
  const unbound = laid({ bindings: new Map([['acme::a id-files', false]]) })
  t.equal(await holds('acme::a may call files.read', unbound), false)
  t.equal(await holds('acme::b may call files.read', unbound), true)
  const on = laid({ resources: new Map([['id-off', { enabled: true }]]) })
  t.equal(await holds('acme::b may call off.any', on), true)
  const open = laid({
    resources: new Map([['id-files', { requiredCapability: null, toolCapabilities: {} }]]),
  })
  t.equal(await holds('acme::a may call files.write', open), true)
  t.equal(await holds('acme::a may call files.read', laid({ settings: { enforceToolsCall: true } })), false)
})

t.test('many people, tools and sentences are judged in slices: others go on', async (t) => {
  const authority: ExpectationAuthority = {
    principals: Array.from({ length: 5_000 }, (_, at) => person(`p${at}`, ['x'])),
    tools: Array.from({ length: 500 }, (_, at) => toolOf('files', `t${at}`, { required_capability: 'y' })),
    bound: new Set(),
  }
  const sentences = ['acme::* may not call files.*', 'acme::p1 may not call *'].flatMap(
    (text) => sentenceOf(text) ?? [],
  )
  let turns = 0
  const counting = setInterval(() => (turns += 1), 1)
  t.same(await evaluateSentences(sentences, authority, MODES), [true, true])
  clearInterval(counting)
  t.ok(turns > 3, `${turns} turns of others`)
})
