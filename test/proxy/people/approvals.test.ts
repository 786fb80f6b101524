import t from 'tap'
import { tool, toolServer } from '../../support/mcp/stage.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { operatorsFile } from '../../support/oidc/sign-in.ts'
import { as, operatorNamed } from '../../support/operators.ts'
import { PEOPLE_URL, peopleGateway } from '../../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../../support/people/person.ts'

const REDIRECT = 'https://client.test/callback'

const provider = await testProvider(t)
const gateway = await peopleGateway(
  t,
  {
    map: { 'alice@example.com': 'alice', 'bob@example.com': 'bob' },
    clients: { registered: [{ id: 'editor', name: 'Editor', redirect_uris: [REDIRECT] }] },
  },
  {
    settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' },
    files: { '70-operators.yaml': operatorsFile(provider.issuer) },
  },
)
await provider.register(gateway)

async function made(path: string, body: object) {
  const answer = await gateway.admin('POST', path, body)
  if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${answer.text}`)
  return answer.json
}

const server = await toolServer(t, [tool('pay'), tool('erase')])
const files = await made('/v1/admin/mcp-resources', {
  ...{ name: 'files', endpoint_url: server.url, required_capability: null, min_proof: 'none' },
  tool_approvals: { pay: 'person', erase: 'operator' },
})
const bind = (id: string) =>
  made('/v1/admin/mcp-resources/bindings', { agent_id: id, resource_id: files.resource_id })
for (const user_name of ['alice', 'bob'])
  await bind((await made('/v1/admin/users', { user_name, capabilities: ['mcp.tools.call'] })).principal_id)
const approver = as(gateway, await operatorNamed(gateway, 'ann', ['admin.read', 'admin.approve']))

async function signedIn(login: string) {
  const person = new Person(gateway, login)
  const { url, verifier } = authorizationUrl('editor', REDIRECT, { resource: PEOPLE_URL })
  const back = await person.allow(url, provider.issuer)
  const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT }
  const code = back.searchParams.get('code') ?? ''
  const { json } = await askToken(gateway, { ...fields, code, code_verifier: verifier })
  return { person, authorization: `Bearer ${json.access_token}` }
}

const alice = await signedIn('alice')
const bob = await signedIn('bob')

async function call(name: string, args: object, authorization = alice.authorization) {
  const answer = await gateway.fetch(`${PEOPLE_URL}/v1/mcp`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      authorization,
    },
    body: JSON.stringify({
      ...{ jsonrpc: '2.0', id: 1, method: 'tools/call' },
      params: { name: `files.${name}`, arguments: args },
    }),
  })
  // biome-ignore lint/suspicious/noExplicitAny: a test reads the answer as its client would, field by field
  const json: any = await answer.json()
  return json
}

const tokenIn = (text: string): string => /name="token" value="([^"]+)"/.exec(text)?.[1] ?? ''
const ROWS = ['approval.requested', 'approval.approved', 'approval.declined']

await t.test('a person approves exactly their own call, in their own browser, once', async (t) => {
  const args = { to: 'carl', note: `safe\u202e${' '.repeat(50)}and more` }
  const { data } = (await call('pay', args)).error
  const url = new URL(data.url)
  t.equal(url.href, `${PEOPLE_URL}/account/approvals/${data.approval}`)
  const { text } = await alice.person.visit(url)
  for (const shown of ['files.pay', 'carl', '\\u{202e}', '<mark>50 spaces</mark>', 'Does pay.'])
    t.match(text, shown)
  t.equal((await alice.person.visit(url, { token: 'guessed', decision: 'approved' })).status, 403)
  t.equal((await alice.person.visit(url, { token: tokenIn(text), decision: 'approved' })).status, 200)
  t.match((await alice.person.visit(url)).text, /Nothing is left to decide/)
  t.ok((await call('pay', args)).result)
  const again = (await call('pay', args)).error.data
  t.not(again.approval, data.approval, 'and asks again')
  const rows = (await gateway.rows()).filter(({ action }) => ROWS.includes(action))
  const subject = rows[0]?.principal_id
  t.match(
    rows.map(({ action, principal_id: who, detail }) => [action, who, detail]),
    [
      ['approval.requested', subject, { approver: 'person', subject }],
      ['approval.approved', subject, { approver: 'person', subject, via: 'oidc' }],
      ['approval.requested', subject, { approver: 'person', subject }],
    ],
  )
})

await t.test('the link opens for nobody else, and not for the program', async (t) => {
  const { data } = (await call('pay', { n: 1 })).error
  const url = new URL(data.url)
  const { status, text } = await bob.person.visit(url)
  t.equal(status, 404)
  t.notMatch(text, 'files.pay')
  const own = new URL((await call('pay', { n: 2 }, bob.authorization)).error.data.url)
  const token = tokenIn((await bob.person.visit(own)).text)
  t.equal((await bob.person.visit(url, { token, decision: 'approved' })).status, 404)
  const program = await gateway.fetch(url, {
    method: 'POST',
    headers: {
      ...{ authorization: alice.authorization, origin: PEOPLE_URL },
      'content-type': 'application/x-www-form-urlencoded',
    },
    body: 'decision=approved',
  })
  t.equal(program.status, 401, 'a token is no session')
  t.match((await approver('GET', `/v1/admin/approvals/${data.approval}`)).json, {
    ...{ status: 'open', approver: 'person' },
  })
  const operator = await approver('POST', `/v1/admin/approvals/${data.approval}/approve`, {})
  t.match([operator.status, operator.json.reason], [403, 'own_call'], 'nor for an operator')
  const declined = await approver('POST', `/v1/admin/approvals/${data.approval}/decline`, { reason: 'No.' })
  t.equal(declined.status, 204, 'who can stop it')
})

await t.test('whoever is not signed in signs in first, and then sees the call', async (t) => {
  const { data } = (await call('pay', { n: 3 })).error
  const fresh = new Person(gateway, 'alice')
  const { url, answer } = await fresh.follow(new URL(data.url), provider.issuer)
  t.equal(url.href, data.url)
  const token = tokenIn(answer?.text ?? '')
  const hiding = { token, decision: 'declined', reason: 'a\u200bb' }
  t.equal((await fresh.visit(url, hiding)).status, 400)
  t.equal((await fresh.visit(url, { token, decision: 'declined', reason: 'Not today.' })).status, 200)
  t.equal((await fresh.visit(url, { token, decision: 'approved' })).status, 409, 'it is decided')
  t.match((await call('pay', { n: 3 })).error.message, /said: Not today\./)
})

await t.test('operator means an operator, and so does person for an agent', async (t) => {
  const { data } = (await call('erase', {})).error
  t.match(data.url, '/proxy/approvals/')
  t.equal((await alice.person.visit(new URL(`/account/approvals/${data.approval}`, PEOPLE_URL))).status, 404)
  const bot = await gateway.enroll('bot', ['mcp.tools.call'])
  await bind(bot.id)
  const asked = await gateway.call(bot, 'POST', '/v1/mcp', {
    body: {
      ...{ jsonrpc: '2.0', id: 1, method: 'tools/call' },
      params: { name: 'files.pay', arguments: {} },
    },
  })
  const { approval, url } = asked.json.error.data
  t.match(url, '/proxy/approvals/')
  t.equal((await approver('POST', `/v1/admin/approvals/${approval}/approve`, {})).status, 204)
})
