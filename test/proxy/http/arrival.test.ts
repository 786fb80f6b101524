import t from 'tap'
import { router } from '../../../proxy/http/arrival.ts'
import type { Route } from '../../../proxy/http/route.ts'
import { refused } from '../../support/refused.ts'

const route = (method: Route['method'], path: string): Route => ({
  method,
  path,
  surface: 'admin',
  answer: () => Promise.reject(new Error('not called')),
})

const find = router([
  route('GET', '/v1/agents'),
  route('POST', '/v1/agents'),
  route('GET', '/v1/agents/{id}'),
  route('PATCH', '/v1/agents/{id}/capabilities'),
  route('POST', '/v1/agents/enroll/capabilities'),
])

await t.test('T17 a path matches exactly as it was sent', (t) => {
  t.equal(find('GET', '/v1/agents').route.path, '/v1/agents')
  for (const path of [
    '/v1/agents/',
    '//v1/agents',
    '/V1/agents',
    '/v1/./agents',
    '/v1/%61gents',
    '/v1/agents;x',
    '',
    '/',
  ]) {
    t.throws(() => find('GET', path), refused('not_found'), path)
  }
  t.end()
})

await t.test('a variable segment is decoded once', (t) => {
  t.strictSame(find('GET', '/v1/agents/acme%3A%3Abot').params, { id: 'acme::bot' })
  t.strictSame(find('GET', '/v1/agents/acme::bot').params, { id: 'acme::bot' })
  t.strictSame(find('GET', '/v1/agents/a%252Fb').params, { id: 'a%2Fb' })
  for (const path of ['/v1/agents/%', '/v1/agents/%ff', '/v1/agents/a/b', '/v1/agents//capabilities']) {
    t.throws(() => find('GET', path), refused('not_found'), path)
  }
  t.end()
})

await t.test('an exact path goes before one with a variable', (t) => {
  t.equal(find('POST', '/v1/agents/enroll/capabilities').route.path, '/v1/agents/enroll/capabilities')
  t.equal(find('PATCH', '/v1/agents/enroll2/capabilities').route.path, '/v1/agents/{id}/capabilities')
  t.end()
})

await t.test('a known path and another method: 405 with Allow', (t) => {
  t.throws(
    () => find('DELETE', '/v1/agents'),
    refused('method_not_allowed', { headers: { allow: 'GET, HEAD, POST' } }),
  )
  t.throws(() => find('get', '/v1/agents'), refused('method_not_allowed'))
  t.equal(find('HEAD', '/v1/agents').route, find('GET', '/v1/agents').route, 'HEAD is wherever GET is')
  t.end()
})

await t.test('docs/protocol.md#base-url /v1/v1 gets a hint about the base URL', (t) => {
  t.throws(() => find('POST', '/v1/v1/chat/completions'), refused('base_url_wrong'))
  t.end()
})

const HINT = 'There is nothing at this path. Append /v1 to the base URL of this client.'

await t.test('a base URL without /v1 gets a hint', (t) => {
  for (const [method, path] of [
    ['POST', '/agents'],
    ['GET', '/agents/x'],
    ['PUT', '/agents'],
  ] as const)
    t.throws(() => find(method, path), refused('not_found', { message: HINT }), path)
  for (const path of ['/agent', '/agents/', '/v1', '/', '', '/v1/agent'])
    t.throws(
      () => find('GET', path),
      refused('not_found', {
        message: 'There is nothing at this path. Check the path and the base URL of this client.',
      }),
      path,
    )
  t.throws(() => find('GET', '/v1/v1/agents'), refused('base_url_wrong'), 'twice is another mistake')
  t.end()
})

await t.test('of two patterns that fit one path each serves its own methods', (t) => {
  const both = router([
    route('GET', '/v1/models/{id}'),
    route('POST', '/v1/{resource}/mcp'),
    route('DELETE', '/v1/{resource}/mcp'),
  ])
  t.match(both('GET', '/v1/models/mcp'), { route: { path: '/v1/models/{id}' }, params: { id: 'mcp' } })
  t.match(both('POST', '/v1/models/mcp'), {
    route: { path: '/v1/{resource}/mcp' },
    params: { resource: 'models' },
  })
  t.throws(
    () => both('PUT', '/v1/models/mcp'),
    refused('method_not_allowed', { headers: { allow: 'GET, HEAD, POST, DELETE' } }),
  )
  t.throws(() => both('POST', '/v1/v1/mcp'), refused('base_url_wrong'), 'nor is the hint lost')
  t.end()
})

await t.test('two routes for one method and path are refused at boot', (t) => {
  t.throws(() => router([route('GET', '/x'), route('GET', '/x')]), /two routes/)
  t.end()
})
