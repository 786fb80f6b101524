import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { findApproval, insertApproval, type StoredApproval } from '../../../../db/mcp/approvals.ts'
import { expireApprovals } from '../../../../proxy/tasks/expire-approvals.ts'
import { approvalStage, askedIn } from '../../../support/approvals/stage.ts'
import { databaseUrl, skipWithoutFile } from '../../../support/db/engine.ts'
import { leading } from '../../../support/db/leading.ts'

/** The files below a directory that hold a text. */
const holding = (directory: string, text: string): readonly string[] =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => readFileSync(path).includes(text))

await t.test(
  'arguments are in no file in clear, and an erased principal has none',
  { skip: skipWithoutFile },
  async (t) => {
    const { stage, bot, approver } = await approvalStage(t)
    const secret = randomBytes(12).toString('hex')
    const id = askedIn(await stage.callTool(bot, 'files.pay', { secret }))
    t.match((await approver('GET', `/v1/admin/approvals/${id}`)).json.arguments, secret)
    t.same(holding(stage.settings.dataDir, secret), [])
    t.equal((await stage.admin('POST', `/v1/admin/agents/${bot.id}/erase`)).status, 204)
    t.equal((await approver('GET', `/v1/admin/approvals/${id}`)).status, 404)
    await stage.close(0)
    t.same(holding(stage.settings.dataDir, secret), [])
  },
)

const OPEN: StoredApproval = {
  approval_id: 'apr_0',
  principal_type: 'agent',
  principal_id: 'acme::bot',
  principal_ref: 'acme::bot',
  request_id: 'req_0',
  client: null,
  resource_id: 'mcpr_0',
  resource_revision: 1,
  resource_name: 'files',
  tool: 'pay',
  pin: 'd1',
  approver: 'operator',
  call_digest: 'c1',
  arguments: 'sealed',
  arguments_bytes: 2,
  status: 'open',
  created_at: '2026-01-01T00:00:00.000Z',
  expires_at: '2026-01-01T00:10:00.000Z',
  decided_by: null,
  decided_at: null,
  via: null,
  reason: null,
}

await t.test(
  'what nobody has decided in time ends with a row and without its arguments, and is forgotten a day later',
  async (t) => {
    const database = await openDatabase(await databaseUrl(t.testdir()))
    const ledger = await openLedger({ database, version: '0' })
    t.teardown(async () => {
      await ledger.close()
      await database.close()
    })
    await leading(database, 'expire-approvals')
    await ledger.commit({ statements: [insertApproval(database, OPEN)], entries: [] })
    let now = Date.parse('2026-01-01T00:09:59.000Z')
    const { run } = expireApprovals({ database, ledger, configDigest: () => 'd', clock: () => now })
    await run()
    t.equal((await findApproval(database, 'apr_0'))?.status, 'open')
    now += 2_000
    await run()
    t.match(await findApproval(database, 'apr_0'), { status: 'expired', arguments: null })
    const rows = await database.kysely.selectFrom('audit_log').select(['action', 'principal_id']).execute()
    t.same(rows, [{ action: 'approval.expired', principal_id: null }])
    now += 86_400_000
    await run()
    t.equal(await findApproval(database, 'apr_0'), undefined)
  },
)
