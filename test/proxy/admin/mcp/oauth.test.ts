import t from 'tap'
import type { Json } from '../../../support/gateway.ts'
import { rawMcp } from '../../../support/mcp/raw-upstream.ts'
import { peopleGateway } from '../../../support/people/door.ts'

const PATH = '/v1/admin/mcp-resources'
const PRIVATE = { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } }

const gateway = await peopleGateway(t, {}, PRIVATE)
const upstream = await rawMcp(t)
const alice = await gateway.admin('POST', '/v1/admin/users', { user_name: 'alice', capabilities: [] })
const reader: string = alice.json.principal_id

const server = (name: string, oauth: Json, more: Json = {}) =>
  gateway.admin('POST', PATH, { name, endpoint_url: upstream.url, auth_type: 'oauth', oauth, ...more })

const fieldsIn = ({ json }: { readonly json: Json }): readonly string[] =>
  json.detail.errors.map(({ field }: Json) => field)

await t.test('a server of accounts names its reader, who must be there', async (t) => {
  for (const [oauth, more, field] of [
    [undefined, {}, 'oauth'],
    [{ scopes: ['files'] }, {}, 'oauth.reader'],
    [{ reader: 'acme::user::nobody' }, {}, 'oauth.reader'],
    [{ reader, client_secret_ref: 'env:MCP_SECRET_X' }, {}, 'oauth.client_secret_ref'],
    [{ reader, client_id: 'c', client_secret_ref: 'hunter2' }, {}, 'oauth.client_secret_ref'],
    [{ reader, scopes: ['two words'] }, {}, 'oauth.scopes[0]'],
    [{ reader, issuer: 'http://login.example.com' }, {}, 'oauth.issuer'],
    [{ reader, issuer: 'https://login.example.com/?a=b' }, {}, 'oauth.issuer'],
    [{ reader, issuer: 'http://169.254.169.254' }, {}, 'oauth.issuer'],
    [{ reader }, { auth_secret_ref: 'env:MCP_SECRET_X' }, 'auth_secret_ref'],
    [{ reader }, { auth_type: 'none' }, 'oauth'],
  ] as const) {
    const answer = await server('refused', oauth, more)
    t.equal(answer.status, 422, JSON.stringify({ oauth, more }))
    t.strictSame(fieldsIn(answer), [field], answer.text)
  }
})

await t.test('its rows say the settings, with the reader by the name of the ledger', async (t) => {
  const { json } = await server('mail', { reader, scopes: ['mail', 'mail', 'files'] })
  t.strictSame(json.oauth, { scopes: ['mail', 'files'], reader })
  t.type(json.last_error, 'string', 'nobody has an account to read it by')
  const [made] = (await gateway.rows()).filter(({ action }) => action === 'mcp_resource.created')
  const said: Json = made?.detail ?? {}
  t.match(said.oauth.reader, /^usr_/)
  t.match(said.oauth_sha256, /^[0-9a-f]{64}$/)
  t.notMatch(JSON.stringify(said), reader)
  const path = `${PATH}/${json.resource_id}`
  const patched = await gateway.admin('PATCH', path, {
    oauth: { reader, scopes: ['mail'], issuer: 'https://a.example' },
  })
  t.strictSame(patched.json.oauth, { issuer: 'https://a.example', scopes: ['mail'], reader })
  t.equal((await gateway.admin('PATCH', path, { oauth: null })).status, 422)
  const plain = await gateway.admin('PATCH', path, { auth_type: 'none' })
  t.equal(plain.json.oauth, null, 'a server of another kind has none')
})
