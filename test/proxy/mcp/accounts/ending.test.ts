import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { AccountEnd, AccountHolder } from '../../../../db/mcp/accounts.ts'
import { deleteSubjectKeys } from '../../../../db/principals/subject-keys.ts'
import { setActive } from '../../../../db/principals/write.ts'
import type { LedgerStatement } from '../../../../db/support/statement.ts'
import { noteEntry } from '../../../../plugins/audit/entries.ts'
import { endingOf } from '../../../../proxy/mcp/accounts/ending.ts'
import { CLIENT, testIssuer } from '../../../support/accounts/issuer.ts'
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
import { skipWithoutFile } from '../../../support/db/engine.ts'

const directory = t.testdir()
const stage = await accountStage(t, directory)
const issuer = await testIssuer(t)
const resource = resourceOf(issuer)
const { database, ledger, accounts } = stage

/** Ends accounts in one unit with what ends them. */
async function ended(
  of: { principal?: AccountHolder; resourceId?: string },
  why: AccountEnd,
  ...more: readonly LedgerStatement[]
): Promise<void> {
  const { statements, notes } = await endingOf(stage, of, why, stage.now())
  const entries = notes.map((note) => noteEntry(note, stage.now(), 'c'))
  await ledger.commit({ statements: [...statements, ...more], entries })
}

async function tokenOf(holder: AccountHolder): Promise<string> {
  const account = await accounts.find(holder, resource)
  const use = account && (await accounts.authorization(account, { method: 'POST', url: issuer.endpoint }))
  return use && use !== 'ended' ? (use.secrets[0] ?? '') : ''
}

const whys = async () => (await accountRows(stage)).flatMap(({ detail }) => detail.why ?? [])

t.test('those of one principal end, and nobody else’s', async (t) => {
  await connected(stage, issuer, resource, ALICE)
  await connected(stage, issuer, resource, BOB)
  const token = await tokenOf(ALICE)
  await ended({ principal: ALICE, resourceId: 'mcpr_2' }, 'unbound')
  t.ok(await accounts.find(ALICE, resource), 'one at another server stays')
  await ended({ principal: ALICE, resourceId: 'mcpr_1' }, 'unbound')
  t.equal(await accounts.find(ALICE, resource), undefined)
  t.ok(await accounts.find(BOB, resource))
  t.same(await whys(), ['unbound'])
  await accounts.revokeDue()
  t.equal(await issuer.tokenOf(token), undefined)
})

t.test('all of a server end with it', async (t) => {
  await connected(stage, issuer, resource, ALICE)
  await ended({ resourceId: 'mcpr_1' }, 'resource_removed')
  t.same([await accounts.listOf(ALICE), await accounts.listOf(BOB)], [[], []])
  t.same(await whys(), ['unbound', 'resource_removed', 'resource_removed'])
})

t.test('of a principal that was erased nothing opens, and its tokens are revoked all the same', async (t) => {
  await connected(stage, issuer, resource, BOB)
  const token = await tokenOf(BOB)
  await ended({ principal: BOB }, 'erased', deleteSubjectKeys(database, 'user', BOB.id))
  t.notOk(
    JSON.stringify(await database.kysely.selectFrom('upstream_revocations').selectAll().execute()).includes(
      'bob',
    ),
  )
  t.ok(await issuer.tokenOf(token))
  await accounts.revokeDue()
  t.equal(await issuer.tokenOf(token), undefined)
  t.same(await database.kysely.selectFrom('upstream_accounts').selectAll().execute(), [])
})

t.test('whoever is deactivated while connecting has no account', async (t) => {
  const { location, cookie } = await begun(stage, resource, ALICE)
  const query = (await issuer.approve(location, 'alice')).search.slice(1)
  const off = setActive(database, { type: 'user', id: ALICE.id, at: stage.now(), active: false })
  await ledger.commit({ statements: [off], entries: [] })
  await t.rejects(finished(stage, resource, { query, cookie }), { name: 'ConnectRefused' })
  t.same(await accounts.listOf(ALICE), [])
})

t.test('no token is in a row of any table, or in the log', async (t) => {
  const shown = JSON.stringify([await everyRow(stage), stage.logged])
  for (const secret of [...issuer.given, CLIENT.client_secret]) t.notOk(shown.includes(secret))
})

t.test('nor in a file of the database', { skip: skipWithoutFile }, async (t) => {
  const files = globSync('**/*', { cwd: directory, withFileTypes: true }).filter((one) => one.isFile())
  t.ok(files.length > 0)
  for (const { parentPath, name } of files) {
    const bytes = readFileSync(join(parentPath, name))
    for (const secret of [...issuer.given, CLIENT.client_secret]) t.notOk(bytes.includes(secret), name)
  }
})
