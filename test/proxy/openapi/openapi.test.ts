import { readFileSync } from 'node:fs'
import t from 'tap'
import { REFUSAL_REASONS } from '../../../plugins/refusal.ts'
import { router } from '../../../proxy/http/arrival.ts'
import { openapi } from '../../../proxy/openapi/document.ts'
import { OPENAPI_FILE, openapiText } from '../../../scripts/write-schemas.ts'
import { proofSigner, tokenFor } from '../../support/dpop.ts'
import { agentOf, ask, CHAT, testGateway } from '../../support/gateway.ts'
import { filesStage } from '../../support/mcp/stage.ts'
import { contradiction, ENTRIES, entryOf, exampleFaults, PUBLISHED } from '../../support/openapi.ts'

await t.test('the published description is that of the code', async (t) => {
  t.equal(readFileSync(OPENAPI_FILE, 'utf8'), await openapiText(), 'run node scripts/write-schemas.ts')
})

await t.test('every listener describes the same routes, to anyone', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:0' } })
  t.same((await gateway.call(null, 'GET', '/openapi.json')).json, PUBLISHED)
  const agent = agentOf(gateway.ca, null)
  t.same((await ask(`${gateway.adminUrl}/openapi.json`, 'GET', { agent })).json, PUBLISHED)
})

await t.test('what is described is served, and by no other method than is described', async (t) => {
  const gateway = await testGateway(t)
  const methods = Map.groupBy(ENTRIES, ({ path }) => path)
  for (const [path, entries] of methods) {
    const sent = path.replaceAll(/\{\w+\}/g, 'x')
    const { status, headers } = await gateway.call(null, 'QUERY', sent)
    const allowed = String(headers.allow).split(', ').sort()
    // HEAD is wherever GET is, and needs no description of its own.
    const described = entries.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
    t.same([status, allowed], [405, described.sort()], path)
  }
})

await t.test('a route of the API that nobody has described cannot be published', async (t) => {
  const answer = () => Promise.reject(new Error('not asked'))
  for (const path of ['/new', '/v1/new', '/proxying', '/v1/proxy']) {
    const route = { method: 'GET', path, surface: 'public', answer } as const
    t.ok(router([route])('GET', path))
    await t.rejects(openapi([route]), { message: `GET ${path} has no doc` })
  }
})

await t.test('pages are served to browsers, and no part of the API', async (t) => {
  const gateway = await testGateway(t)
  for (const path of ['/proxy', '/proxy/sign-in', '/proxy/activity/live']) {
    t.not((await gateway.call(null, 'GET', path)).status, 404, path)
    t.equal(entryOf('GET', path), undefined, path)
  }
  const ofPrograms = ENTRIES.map(({ path }) => path).filter((path) => path.startsWith('/proxy'))
  t.same(ofPrograms, ['/proxy/oidc/backchannel-logout'])
})

await t.test(
  'every reason that is named exists, and every one there is stands at a route that it is of',
  (t) => {
    const named = new Set<string>(ENTRIES.flatMap(({ doc }) => doc['x-reasons']))
    // Of no route at all, and of nobody who could read it.
    const unnamed = ['base_url_wrong', 'client_gone']
    // Of the door of people alone: the document describes the main listener.
    const ofPeople = ['proof_too_weak', 'token_required']
    // Of pages alone.
    const rendered = ['sign_in_not_begun', 'sign_in_refused', 'sign_in_throttled', 'signed_out']
    t.same(
      [...named, ...unnamed, ...ofPeople, ...rendered].toSorted(),
      Object.keys(REFUSAL_REASONS).toSorted(),
      'each reason, once',
    )
    for (const { path, doc } of ENTRIES) {
      const shown = Object.keys(doc.responses).flatMap((status) => {
        const { $ref: ref } = doc.responses[status]
        const response = ref ? PUBLISHED.components.responses[ref.split('/').at(-1)] : doc.responses[status]
        return Object.keys(response.content?.['application/json']?.examples ?? {})
      })
      t.same(shown.filter((name) => name !== 'answer').sort(), doc['x-reasons'].toSorted(), path)
    }
    t.end()
  },
)

await t.test('operations have names of their own, and aliases say of which route', (t) => {
  const names = ENTRIES.map(({ doc }) => doc.operationId)
  t.equal(new Set(names).size, names.length)
  t.equal(entryOf('GET', '/healthz')?.doc['x-alias-of'], '/health')
  t.equal(entryOf('POST', '/v1/llm/chat')?.doc['x-alias-of'], '/v1/chat/completions')
  t.equal(entryOf('POST', '/v1/{resource}/mcp')?.doc['x-alias-of'], '/v1/mcp/{resource}')
  t.end()
})

await t.test('every example is of the shape that it is an example of', (t) => {
  t.same(exampleFaults(), [])
  t.end()
})

await t.test('what an operator, a principal and anybody are answered is as described', async (t) => {
  const { stage: gateway, files, bot } = await filesStage(t, ['mcp.tools.list', 'files.use', 'llm.chat'])
  const seen = new Set<string>()
  const check = (method: string, path: string, answered: Parameters<typeof contradiction>[1]) => {
    const entry = entryOf(method, path)
    seen.add(`${method} ${entry?.path} ${answered.status}`)
    t.equal(entry ? contradiction(entry, answered) : `${method} ${path} is not described`, null)
  }
  const requests = ENTRIES.map(({ method, path, doc }) => ({
    method,
    sent: path.replaceAll(/\{\w+\}/g, 'x'),
    body: method === 'GET' || method === 'DELETE' ? undefined : {},
    forOperators: doc.security[0]?.admin_secret !== undefined,
  }))
  for (const { method, sent, body } of requests.filter(({ forOperators }) => forOperators))
    check(method, sent, await gateway.admin(method, sent, body))
  const models = (headers = {}) => gateway.call(bot, 'GET', '/v1/models', { headers })
  check('GET', '/v1/models', await models())
  check('GET', '/v1/models', await models({ 'anthropic-version': '2023-06-01' }))
  const chat = '/v1/chat/completions'
  for (const body of [CHAT, { ...CHAT, stream: true }, {}, '{', { ...CHAT, model: 'unknown/x' }])
    check('POST', chat, await gateway.call(bot, 'POST', chat, { body }))
  check('POST', '/v1/auth/token', await tokenFor(gateway, bot, proofSigner()))
  check('POST', '/v1/auth/token', await tokenFor(gateway, bot, null, { scope: 'admin' }))
  const challenge = '/v1/auth/login-challenge'
  check('POST', challenge, await gateway.call(bot, 'POST', challenge))
  for (const modern of [true, false]) {
    check('POST', '/v1/mcp', await gateway.rpc(bot, 'tools/list', { modern }))
    check('POST', '/v1/mcp', await gateway.callTool(bot, 'files.read', {}, { modern }))
    check('POST', '/v1/mcp', await gateway.callTool(bot, 'files.none', {}, { modern }))
    check('POST', '/v1/mcp', await gateway.rpc(bot, 'no/such', { modern }))
  }
  await gateway.bind(bot, files)
  check('POST', '/v1/mcp/files', await gateway.callTool(bot, 'read', {}, { at: '/files' }))
  check('POST', '/v1/mcp', await gateway.call(bot, 'POST', '/v1/mcp', { body: '[]' }))
  check('DELETE', '/v1/mcp', await gateway.call(bot, 'DELETE', '/v1/mcp'))
  // Last, because who fails too often is answered no more.
  for (const { method, sent, body } of requests)
    check(method, sent, await gateway.call(null, method, sent, { body }))
  t.ok(seen.size > 100, `${seen.size} different answers were looked at`)
})
