import { decodeJwt, decodeProtectedHeader } from 'jose'
import t from 'tap'
import { ConnectRefused, IssuerUnavailable, NotBegun } from '../../../../proxy/mcp/accounts/accounts.ts'
import { CLIENT, PEOPLE_URL, testIssuer } from '../../../support/accounts/issuer.ts'
import {
  ALICE,
  accountRows,
  accountStage,
  BOB,
  begun,
  connected,
  everyRow,
  finished,
  resourceOf,
} from '../../../support/accounts/stage.ts'

const stage = await accountStage(t)
const issuer = await testIssuer(t)
const resource = resourceOf(issuer)
const request = { method: 'POST', url: `${issuer.endpoint}?a=1` }

t.test(
  'an account is connected by the issuer that the server names, bound to a key of its own',
  async (t) => {
    t.same(await stage.accounts.issuerOf(resource), { issuer: issuer.issuer, client: 'configured' })
    const { location, whole } = await begun(stage, resource)
    const asked = Object.fromEntries(new URL(location).searchParams)
    t.match(asked, {
      ...{ client_id: 'sallyport', response_type: 'code', code_challenge_method: 'S256', scope: 'files' },
      ...{ resource: issuer.endpoint, redirect_uri: `${PEOPLE_URL}/oauth/account/callback` },
    })
    t.match(whole, /^__Host-account-transaction=[\w-]+; .*SameSite=Lax/)
    t.match(whole, /; HttpOnly/)
    const account = await connected(stage, issuer)
    t.match(account, { holder: ALICE, resourceId: 'mcpr_1', scopes: ['files'], bound: true, revision: 1 })
    t.match(await accountRows(stage), [
      {
        action: 'upstream_account.connected',
        principal_id: 'usr_alice',
        detail: {
          ...{ subject: 'usr_alice', account: account.id, issuer: issuer.issuer, scopes: ['files'] },
          ...{ resource_id: 'mcpr_1', client: 'configured', bound: true, issuer_subject_sha256: null },
        },
      },
    ])
    const found = await stage.accounts.find(ALICE, resource)
    t.same(found, account)
    t.same(await stage.accounts.listOf(ALICE), [account])
    const use = found && (await stage.accounts.authorization(found, { ...request, nonce: 'n1' }))
    if (!use || use === 'ended') return t.fail('it has no use')
    const { authorization = '', dpop = '' } = use.headers
    t.match(authorization, /^DPoP ./)
    t.match(decodeJwt(dpop), { htm: 'POST', htu: issuer.endpoint, nonce: 'n1' })
    t.notHas(decodeProtectedHeader(dpop).jwk, { d: /./ }, 'the private key stays here')
    const token = await issuer.tokenOf(use.secrets[0])
    t.match(token, { accountId: 'usr_alice', clientId: 'sallyport' })
    t.ok(token?.jkt, 'the issuer knows its key')
  },
)

t.test('two people have each their own; to connect again replaces', async (t) => {
  const before = await stage.accounts.find(ALICE, resource)
  const own = await connected(stage, issuer, resource, BOB)
  const again = await connected(stage, issuer)
  t.not(again.id, before?.id)
  t.same(await stage.accounts.find(ALICE, resource), again)
  t.same(await stage.accounts.find(BOB, resource), own)
  const rows = await accountRows(stage)
  t.match(rows.slice(-2), [
    { action: 'upstream_account.ended', detail: { account: before?.id, why: 'replaced' } },
    { action: 'upstream_account.connected', detail: { account: again.id } },
  ])
})

t.test('an answer counts once, for the browser and the person that have begun', async (t) => {
  const { location, cookie } = await begun(stage, resource)
  const other = await begun(stage, resource)
  const query = (await issuer.approve(location, 'alice')).search.slice(1)
  const of = (more: object) => finished(stage, resource, { query, cookie, ...more })
  await t.rejects(of({ cookie: '' }), NotBegun, 'a browser without the cookie')
  await t.rejects(of({ cookie: other.cookie }), NotBegun, 'another browser’s state')
  await t.rejects(of({ cookie: `${cookie}x` }), NotBegun, 'a cookie that was changed')
  await t.rejects(of({ holder: BOB }), NotBegun, 'somebody else who is signed in')
  await t.rejects(of({ query: `${query}&state=x` }), NotBegun, 'two states')
  const elsewhere = query.replace(/iss=[^&]*/, 'iss=https%3A%2F%2Fevil.example')
  await t.rejects(of({ query: elsewhere }), NotBegun, 'the answer of another issuer')
  t.equal((await accountRows(stage)).length, 4, 'none of it has connected anything')
  const fresh = await begun(stage, resource)
  const back = (await issuer.approve(fresh.location, 'alice')).search.slice(1)
  const once = { query: back, cookie: fresh.cookie }
  t.ok(await finished(stage, resource, once))
  await t.rejects(finished(stage, resource, once), NotBegun, 'the same once more')
  const unsaid = await begun(stage, resource)
  const bare = (await issuer.approve(unsaid.location, 'alice')).search.slice(1).replace(/&iss=[^&]*/, '')
  await t.rejects(finished(stage, resource, { query: bare, cookie: unsaid.cookie }), NotBegun, 'no issuer')
  const late = await begun(stage, resource)
  const after = (await issuer.approve(late.location, 'alice')).search.slice(1)
  stage.pass(601_000)
  await t.rejects(finished(stage, resource, { query: after, cookie: late.cookie }), NotBegun, 'too late')
})

t.test('a person who says no has no account, and keeps the one that was there', async (t) => {
  const before = await stage.accounts.find(ALICE, resource)
  const { location, cookie } = await begun(stage, resource)
  const query = (await issuer.approve(location, '')).search.slice(1)
  await t.rejects(finished(stage, resource, { query, cookie }), {
    name: 'ConnectRefused',
    message: /access_denied$/,
  })
  t.same(await stage.accounts.find(ALICE, resource), before)
  const wrong = await begun(stage, resource)
  const state = new URL(wrong.location).searchParams.get('state')
  const made = `code=nothing&state=${state}&iss=${encodeURIComponent(issuer.issuer)}`
  await t.rejects(finished(stage, resource, { query: made, cookie: wrong.cookie }), ConnectRefused)
})

t.test('an account is of one endpoint, issuer and client: of others it is none', async (t) => {
  const { endpoint } = issuer
  t.ok(await stage.accounts.find(ALICE, resource))
  for (const [what, changed] of Object.entries({
    'another endpoint': { ...resource, endpoint_url: `${endpoint}/other` },
    'another issuer': resourceOf(issuer, { issuer: 'https://login.example' }),
    'another client': resourceOf(issuer, { client_id: 'other' }),
    'no accounts any more': { ...resource, oauth: null },
  }))
    t.equal(await stage.accounts.find(ALICE, changed), undefined, what)
  t.ok(await stage.accounts.find(ALICE, resourceOf(issuer, { issuer: issuer.issuer })))
  const { location, cookie } = await begun(stage, resource)
  const query = (await issuer.approve(location, 'alice')).search.slice(1)
  const moved = { ...resource, endpoint_url: `${endpoint}/other` }
  await t.rejects(finished(stage, moved, { query, cookie }), NotBegun, 'changed between')
})

t.test('a row that is copied to somebody else does not open', async (t) => {
  const { kysely } = stage.database
  const row = await kysely
    .selectFrom('upstream_accounts')
    .selectAll()
    .where('principal_id', '=', ALICE.id)
    .executeTakeFirstOrThrow()
  const { sql, parameters } = kysely
    .updateTable('upstream_accounts')
    .set({ tokens: row.tokens })
    .where('principal_id', '=', BOB.id)
    .compile()
  await stage.ledger.commit({ statements: [{ sql, parameters }], entries: [] })
  t.equal(await stage.accounts.find(BOB, resource), undefined)
  t.match(stage.logged.at(-1), /do not open/)
  const whole = kysely
    .updateTable('upstream_accounts')
    .set({ principal_ref: ALICE.ref, account_id: `${row.account_id}x` })
    .where('principal_id', '=', BOB.id)
    .compile()
  await stage.ledger.commit({ statements: [whole], entries: [] })
  t.equal(await stage.accounts.find(BOB, resource), undefined, 'nor with the name of whose it was')
})

t.test('a client without a name is registered once, or known by its document', async (t) => {
  const registering = await testIssuer(t, { features: { registration: { enabled: true } } })
  const open = resourceOf(registering)
  const unnamed = { ...open, oauth: { scopes: ['files'], reader: ALICE.id } }
  t.same(await stage.accounts.issuerOf(unnamed), { issuer: registering.issuer, client: 'registered' })
  t.equal(registering.asked.get('/reg'), undefined, 'looking registers nothing')
  const account = await connected(stage, registering, unnamed)
  t.match((await accountRows(stage)).at(-1)?.detail, { account: account.id, client: 'registered' })
  await connected(stage, registering, unnamed)
  t.equal(registering.asked.get('/reg'), 1)
  const nobody = await testIssuer(t)
  const none = { ...resourceOf(nobody), oauth: { scopes: [], reader: ALICE.id } }
  await t.rejects(stage.accounts.issuerOf(none), { name: 'IssuerUnavailable', message: /name a client_id/ })
})

t.test('an issuer that is spoiled is none', async (t) => {
  const honest = (base: string) => ({
    ...{ issuer: base, authorization_endpoint: `${base}/auth`, token_endpoint: `${base}/token` },
    code_challenge_methods_supported: ['S256'],
  })
  const spoiled: Readonly<Record<string, (base: string) => unknown>> = {
    'another issuer': (base) => ({ ...honest(base), issuer: 'https://login.example' }),
    'no PKCE': (base) => ({ ...honest(base), code_challenge_methods_supported: undefined }),
    'plain PKCE alone': (base) => ({ ...honest(base), code_challenge_methods_supported: ['plain'] }),
    'no token endpoint': (base) => ({ ...honest(base), token_endpoint: undefined }),
    'an endpoint that is no address': (base) => ({
      ...honest(base),
      authorization_endpoint: 'javascript:alert(1)',
    }),
    'http at a public host': (base) => ({ ...honest(base), token_endpoint: 'http://login.example/token' }),
    'a list': () => [],
    'more than 64 KiB': (base) => ({ ...honest(base), more: 'x'.repeat(65_536) }),
  }
  const of = async (metadata: (base: string) => unknown) => {
    const one = await testIssuer(t, { metadata })
    return stage.accounts.issuerOf(resourceOf(one))
  }
  t.ok(await of(honest))
  for (const [what, metadata] of Object.entries(spoiled))
    await t.rejects(of(metadata), IssuerUnavailable, what)
  const unsaid = await testIssuer(t, {
    metadata: (base) => ({ ...honest(base), code_challenge_methods_supported: undefined }),
  })
  t.ok(
    await stage.accounts.issuerOf(resourceOf(unsaid, { issuer: unsaid.issuer })),
    'one that an operator names',
  )
})

t.test('no token and no secret is in a row of any table, or in the log', async (t) => {
  const shown = JSON.stringify([await everyRow(stage), stage.logged])
  t.match(shown, /ua_/)
  for (const secret of issuer.given) t.notOk(shown.includes(secret))
  t.notOk(shown.includes(CLIENT.client_secret))
})
