import t from 'tap'
import type { UpstreamAccount } from '../../../../db/mcp/accounts.ts'
import { IssuerUnavailable } from '../../../../proxy/mcp/accounts/accounts.ts'
import { testIssuer } from '../../../support/accounts/issuer.ts'
import {
  ALICE,
  accountRows,
  accountStage,
  connected,
  everyRow,
  resourceOf,
} from '../../../support/accounts/stage.ts'
import { ENGINE } from '../../../support/db/engine.ts'

const directory = t.testdir()
const stage = await accountStage(t, directory)
// On SQLite one process has the file.
const other = ENGINE === 'postgres' ? await accountStage(t, directory) : stage
const issuer = await testIssuer(t)
const resource = resourceOf(issuer)
const request = { method: 'POST', url: issuer.endpoint }
const HOUR = 3_600_000

const asked = (): number => issuer.asked.get('/token') ?? 0

async function used(of: typeof stage, account: UpstreamAccount) {
  const use = await of.accounts.authorization(account, request)
  if (use === 'ended') throw new Error('it has ended')
  return use
}

t.beforeEach(() => {
  issuer.behaviour.tokens = 'well'
  issuer.behaviour.rotates = true
})

/** A new account, whose token has less than a minute left by the clocks of both. */
async function expiring(): Promise<UpstreamAccount> {
  const account = await connected(stage, issuer, resource)
  const left = (account.expiresAt ?? 0) - stage.now() - 30_000
  for (const one of new Set([stage, other])) one.pass(left)
  return account
}

t.test('a token that holds is used as it is', async (t) => {
  const account = await connected(stage, issuer, resource)
  const before = asked()
  t.match(await used(stage, account), { refreshed: false, account: { revision: 1 } })
  t.equal(asked(), before)
})

for (const rotates of [true, false])
  t.test(`40 calls at two gateways refresh once, ${rotates ? '' : 'not '}rotating`, async (t) => {
    issuer.behaviour.rotates = rotates
    const account = await expiring()
    const before = asked()
    const both = Array.from({ length: 40 }, (_, nth) => used(nth % 2 ? stage : other, account))
    const uses = await Promise.all(both)
    t.equal(asked() - before, 1)
    t.same([...new Set(uses.map((use) => use.account.revision))], [2])
    t.equal(new Set(uses.flatMap(({ secrets }) => secrets)).size, 1, 'all have the winner’s token')
    t.ok(uses.every(({ refreshed }) => refreshed))
    t.match(await issuer.tokenOf(uses[0]?.secrets[0]), { accountId: 'usr_alice' })
    for (const one of new Set([stage, other])) one.pass(HOUR)
    t.match(await used(stage, await found()), { account: { revision: 3 } }, 'and again an hour later')
  })

async function found(): Promise<UpstreamAccount> {
  const account = await stage.accounts.find(ALICE, resource)
  if (!account) throw new Error('there is none')
  return account
}

t.test('a token that the server refuses is replaced once, and a young one not at all', async (t) => {
  const account = await connected(stage, issuer, resource)
  const before = asked()
  t.match(await stage.accounts.refresh(account, 1), { revision: 1 }, 'a server that says so each time')
  t.equal(asked(), before)
  for (const one of new Set([stage, other])) one.pass(11_000)
  const newer = await Promise.all([stage.accounts.refresh(account, 1), other.accounts.refresh(account, 1)])
  t.match(newer, [{ revision: 2 }, { revision: 2 }])
  t.equal(asked() - before, 1)
  t.match(await stage.accounts.refresh(account, 1), { revision: 2 }, 'one who comes late finds it')
  t.equal(asked() - before, 1)
})

t.test('an issuer that cannot be asked ends nothing, and is left alone for a while', async (t) => {
  const account = await expiring()
  for (const fault of ['fails', 'redirects', 'too long'] as const) {
    issuer.behaviour.tokens = fault
    const before = asked()
    t.match(await used(stage, account), { refreshed: false }, `${fault}: the token still holds`)
    t.match(await used(stage, account), { refreshed: false })
    t.equal(asked() - before, 1, 'one question')
    stage.pass(5_001)
  }
  t.equal(issuer.asked.get('/elsewhere'), undefined, 'no redirect is followed')
  stage.pass(60_000)
  await t.rejects(used(stage, account), IssuerUnavailable, 'it is over')
  issuer.behaviour.tokens = 'well'
  await t.rejects(used(stage, account), IssuerUnavailable)
  stage.pass(5_001)
  t.match(await used(stage, account), { refreshed: true, account: { revision: 2 } })
})

t.test('an issuer that is late is waited for five seconds, once for all', async (t) => {
  const account = await expiring()
  stage.pass(60_000)
  issuer.behaviour.tokens = 'late'
  const before = asked()
  const waiting = await Promise.allSettled([used(stage, account), used(stage, account)])
  t.match(waiting, [{ reason: { name: 'IssuerUnavailable' } }, { reason: { name: 'IssuerUnavailable' } }])
  t.equal(asked() - before, 1)
})

for (const rotates of [true, false])
  t.test(`an issuer that dies after its work, ${rotates ? '' : 'not '}rotating`, async (t) => {
    issuer.behaviour.rotates = rotates
    const account = await expiring()
    issuer.behaviour.tokens = 'dies after'
    t.match(await used(stage, account), { refreshed: false }, 'the former token still holds')
    issuer.behaviour.tokens = 'well'
    stage.pass(5_001)
    const next = await stage.accounts.authorization(account, request)
    if (!rotates) return t.match(next, { refreshed: true, account: { revision: 2 } })
    t.equal(next, 'ended', 'the former refresh token is void: the person is asked anew')
    t.match((await accountRows(stage)).at(-1), {
      action: 'upstream_account.ended',
      principal_id: null,
      detail: { account: account.id, why: 'invalid_grant' },
    })
    t.equal(await stage.accounts.find(ALICE, resource), undefined)
    t.equal(await stage.accounts.authorization(account, request), 'ended', 'again and again')
  })

t.test('a process that died with the refresh holds others up for 15 seconds', async (t) => {
  const account = await expiring()
  const until = new Date(stage.now() + 10_000).toISOString()
  const { sql, parameters } = stage.database.kysely
    .updateTable('upstream_accounts')
    .set({ refreshing_until: until })
    .compile()
  await stage.ledger.commit({ statements: [{ sql, parameters }], entries: [] })
  const before = asked()
  const waiting = used(stage, account)
  for (let look = 0; look < 5; look += 1) await stage.accounts.findById(account.id)
  t.equal(asked(), before, 'it waits for the other one')
  stage.pass(10_001)
  t.match(await waiting, { refreshed: true, account: { revision: 2 } })
})

t.test('tokens that the ledger could not store are not lost', async (t) => {
  const account = await expiring()
  const commit = stage.ledger.commit.bind(stage.ledger)
  const isStoring = (unit: Parameters<typeof commit>[0]) =>
    unit.statements?.some(({ sql }) => /"revision" = .*"refreshing_until"|"tokens" = /.test(sql)) === true
  stage.ledger.commit = (unit) =>
    isStoring(unit) ? Promise.reject(new Error('the disk is full')) : commit(unit)
  const before = asked()
  await t.rejects(used(stage, account), /disk is full/)
  stage.ledger.commit = commit
  t.match(await used(stage, account), { refreshed: true, account: { revision: 2 } })
  t.equal(asked() - before, 1)
})

t.test('an account that ends is revoked at the issuer, for a day at most', async (t) => {
  const account = await connected(stage, issuer, resource)
  const { secrets } = await used(stage, account)
  t.ok(await issuer.tokenOf(secrets[0]))
  t.equal(await stage.accounts.end(account, 'person', ALICE), true)
  t.equal(await stage.accounts.end(account, 'person', ALICE), false, 'once')
  t.equal(await stage.accounts.find(ALICE, resource), undefined, 'it has ended before it is revoked')
  t.match((await accountRows(stage)).at(-1), { principal_id: 'usr_alice', detail: { why: 'person' } })
  await stage.accounts.revokeDue()
  t.equal(await issuer.tokenOf(secrets[0]), undefined)
  const left = () => stage.database.kysely.selectFrom('upstream_revocations').selectAll().execute()
  t.same(await left(), [])
  const late = await connected(stage, issuer, resource)
  await stage.accounts.end(late, 'operator', ALICE)
  issuer.behaviour.tokens = 'fails'
  let tries = 0
  for (; (await left()).length > 0 && tries < 100; tries += 1) {
    await stage.accounts.revokeDue()
    stage.pass(HOUR)
  }
  t.ok(tries > 5 && tries < 30, `tried ${tries} times in a day`)
})

t.test('no token is in a row of any table, or in the log', async (t) => {
  const shown = JSON.stringify([await everyRow(stage), stage.logged])
  t.ok(issuer.given.size > 20)
  for (const secret of issuer.given) t.notOk(shown.includes(secret))
})
