import { randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import { pino } from 'pino'
import type { Test } from 'tap'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import type { AccountHolder, UpstreamAccount } from '../../../db/mcp/accounts.ts'
import { insertMcpResource, NO_APPROVALS } from '../../../db/mcp/resources.ts'
import { insertSubjectKey } from '../../../db/principals/subject-keys.ts'
import { insertPrincipal } from '../../../db/principals/write.ts'
import { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { AccountResource } from '../../../proxy/mcp/accounts/accounts.ts'
import { openAccounts } from '../../../proxy/mcp/accounts/open.ts'
import { databaseUrl } from '../db/engine.ts'
import { CLIENT, PEOPLE_URL, type TestIssuer } from './issuer.ts'

export const ALICE: AccountHolder = { id: 'acme::user::alice', type: 'user', ref: 'usr_alice' }
export const BOB: AccountHolder = { id: 'acme::user::bob', type: 'user', ref: 'usr_bob' }

/** A process with the accounts of a database. */
export interface AccountStage {
  readonly database: Database
  readonly ledger: Ledger
  readonly subjectKeys: SubjectKeys
  readonly accounts: ReturnType<typeof openAccounts>
  /** Moves the clock of this process. */
  readonly pass: (ms: number) => void
  readonly now: () => number
  readonly logged: string[]
}

const SEALER = randomBytes(32)

/** Opens a process on the database of a directory: two of them on PostgreSQL are two gateways. */
export async function accountStage(t: Test, directory = t.testdir()): Promise<AccountStage> {
  const database = await openDatabase(await databaseUrl(directory))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const subjectKeys = new SubjectKeys(database, SEALER)
  let passed = 0
  const now = (): number => Date.now() + passed
  const logged: string[] = []
  const accounts = openAccounts({
    ...{ database, ledger, subjectKeys, clock: now, monotonic: () => performance.now() + passed },
    ...{ peopleUrl: PEOPLE_URL, allowPrivate: true, configDigest: () => 'c' },
    secret: (reference) => Promise.resolve(reference === 'env:MCP_SECRET_FILES' ? CLIENT.client_secret : ''),
    log: pino({}, { write: (line: string) => void logged.push(line) }),
  })
  await enroll(database, ledger, subjectKeys)
  return {
    ...{ database, ledger, subjectKeys, accounts, now, logged },
    pass: (ms) => {
      passed += ms
    },
  }
}

/** Makes two people and a server, unless they are there. */
async function enroll(database: Database, ledger: Ledger, keys: SubjectKeys): Promise<void> {
  const known = await database.kysely.selectFrom('mcp_resources').select('resource_id').executeTakeFirst()
  if (known) return
  const people = [ALICE, BOB].flatMap((one) => [
    insertPrincipal(database, {
      ...{ ...one, name: one.ref, displayName: null, capabilities: [], enrollmentMethod: 'oidc' },
      ...{ spiffeId: null, dpopJkt: null, federated: false, at: Date.now() },
    }),
    insertSubjectKey(database, { ...one, sealed: keys.makeFor(one.ref) }),
  ])
  const server = insertMcpResource(database, {
    ...{ ...NO_APPROVALS, resource_id: 'mcpr_1', name: 'files', description: null, auth_type: 'none' },
    ...{ endpoint_url: 'https://mcp.example/mcp', auth_secret_ref: null, required_capability: null },
    ...{ allowed_domains: [], enabled: true, tool_capabilities: {}, min_proof: 'certificate' },
    ...{ tool_min_proof: {}, oauth: null, at: Date.now() },
  })
  await ledger.commit({ statements: [...people, server], entries: [] })
}

/** The server of an issuer, as an operator has registered it. */
export const resourceOf = (
  { endpoint }: Pick<TestIssuer, 'endpoint'>,
  more: Partial<NonNullable<AccountResource['oauth']>> = {},
): AccountResource => ({
  resource_id: 'mcpr_1',
  endpoint_url: endpoint,
  oauth: {
    ...{ client_id: CLIENT.client_id, client_secret_ref: 'env:MCP_SECRET_FILES' },
    ...{ scopes: ['files'], reader: ALICE.id },
    ...more,
  },
})

/** Begins, and returns what goes to the issuer and what the browser keeps. */
export async function begun(
  { accounts, now }: AccountStage,
  resource: AccountResource,
  holder: AccountHolder = ALICE,
) {
  const { location, cookie } = await accounts.begin({
    ...{ holder, resource, scopes: [], person: holder.id, returnTo: '/account', at: now() },
  })
  return { location, cookie: cookie.split(';')[0] ?? '', whole: cookie }
}

/** Brings an answer of the issuer back. */
export const finished = (
  { accounts, now }: AccountStage,
  resource: AccountResource,
  { query, cookie, holder = ALICE }: { query: string; cookie: string; holder?: AccountHolder },
) =>
  accounts.finish({
    ...{ query, headers: { cookie }, person: holder.id, at: now(), requestId: 'req_1' },
    resourceOf: (id) => Promise.resolve(id === resource.resource_id ? resource : undefined),
    by: holder,
  })

/** Connects an account of somebody who signs in at the issuer. */
export async function connected(
  stage: AccountStage,
  issuer: TestIssuer,
  resource = resourceOf(issuer),
  holder: AccountHolder = ALICE,
): Promise<UpstreamAccount> {
  const { location, cookie } = await begun(stage, resource, holder)
  const back = await issuer.approve(location, holder.ref)
  const { account } = await finished(stage, resource, { query: back.search.slice(1), cookie, holder })
  return account
}

/** Reads the rows of accounts, oldest first. */
export async function accountRows({ database }: AccountStage) {
  const rows = await database.kysely
    .selectFrom('audit_log')
    .select(['action', 'principal_id', 'detail'])
    .where('action', 'like', 'upstream_account.%')
    .orderBy('seq')
    .execute()
  return rows.map(({ action, principal_id, detail }) => ({
    action,
    principal_id,
    detail: JSON.parse(detail),
  }))
}

/** Reads every row of every table. */
export async function everyRow({ database: { kysely } }: Pick<AccountStage, 'database'>): Promise<unknown> {
  const tables = await kysely.introspection.getTables()
  return Promise.all(tables.map(({ name }) => sql`select * from ${sql.table(name)}`.execute(kysely)))
}
