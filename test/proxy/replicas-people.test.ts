import { decodeJwt } from 'jose'
import t from 'tap'
import { twoStages } from '../support/db/postgres/stages.ts'
import { testProvider } from '../support/oidc/provider.ts'
import { operatorsFile } from '../support/oidc/sign-in.ts'
import { PEOPLE_URL, type PeopleGateway, peopleFetch } from '../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../support/people/person.ts'

const REDIRECT = 'https://client.test/callback'
const PEOPLE = {
  plugin: 'people',
  map: { 'alice@example.com': { set: ['mcp.tools.list'], create: true } },
  clients: { registered: [{ id: 'editor', name: 'Editor', redirect_uris: [REDIRECT] }] },
}

const provider = await testProvider(t)
const { one, other } = await twoStages(t, {
  settings: {
    MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:0',
    MCP_PROXY_PEOPLE_URL: PEOPLE_URL,
    MCP_PROXY_HOSTNAMES: 'localhost,127.0.0.1,people.test',
  },
  files: {
    '65-people.yaml': JSON.stringify(PEOPLE),
    '70-operators.yaml': operatorsFile(provider.issuer),
  },
})
await provider.register(one)
const [here, there] = [one, other].map((stage) => ({ fetch: peopleFetch(t, stage) }))
if (!here || !there) throw new Error('there are two gateways')
let asked = 0
/** Reaches another gateway with each request, as behind a balancer. */
const inTurn = { fetch: ((...given) => (asked++ % 2 === 0 ? here : there).fetch(...given)) as typeof fetch }

async function codeOf(by: Pick<PeopleGateway, 'fetch'>) {
  const { url, verifier } = authorizationUrl('editor', REDIRECT)
  const back = await new Person(by, 'alice').allow(url, provider.issuer)
  const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT }
  const code = back.searchParams.get('code') ?? ''
  return (at: Pick<PeopleGateway, 'fetch'>) => askToken(at, { ...fields, code, code_verifier: verifier })
}

t.test('a code that one gateway has made the other redeems, and refreshes', async (t) => {
  const redeem = await codeOf(here)
  const { status, json } = await redeem(there)
  t.equal(status, 200, JSON.stringify(json))
  const refresh = { grant_type: 'refresh_token', client_id: 'editor', refresh_token: json.refresh_token }
  const again = await askToken(here, refresh)
  t.equal(again.status, 200)
  t.equal(decodeJwt(again.json.access_token).grant, decodeJwt(json.access_token).grant)
})

t.test('a sign-in goes on at whichever gateway its next request comes to', async (t) => {
  t.equal((await (await codeOf(inTurn))(inTurn)).status, 200)
})

t.test('of redemptions of one code at both gateways at once, one has a token', async (t) => {
  for (let round = 0; round < 5; round += 1) {
    const redeem = await codeOf(here)
    const answers = await Promise.all([here, there, here, there].map(redeem))
    const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b)
    t.same(statuses, [200, 400, 400, 400], `round ${round}`)
    t.same(new Set(answers.map(({ json }) => json.error)), new Set([undefined, 'invalid_grant']))
  }
})
