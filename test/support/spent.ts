import type { Test } from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { type SpentCall, spentEntries } from './db/counts.ts'
import { type TestGateway, type TestOptions, testGateway } from './gateway.ts'
import { eventually } from './settled.ts'

export interface SpentStage {
  readonly gateway: TestGateway
  /** The pseudonym of the user zoe. */
  readonly zoe: string
  /** All rows are counted. */
  readonly counted: () => Promise<void>
}

/**
 * A gateway whose ledger has the rows of calls that cost something: of the agents `bot` and `=bot`, and of the
 * user zoe. Its decisions name no authority, so its test verifies the chain itself.
 */
export async function spentStage(
  t: Test,
  calls: (names: { readonly bot: string; readonly zoe: string }) => readonly SpentCall[],
  options: TestOptions = {},
): Promise<SpentStage> {
  const first = await testGateway(t, { ...options, verify: false })
  const bot = await first.enroll('bot', ['llm.chat'])
  await first.admin('POST', '/v1/admin/users', { user_name: 'zoe' })
  await first.close(0)
  const database = await openDatabase(first.settings.databaseUrl)
  const { principal_ref: zoe } = await database.kysely
    .selectFrom('local_user_principals')
    .select('principal_ref')
    .executeTakeFirstOrThrow()
  const ledger = await openLedger({ database, version: '0.6.4' })
  const all = calls({ bot: bot.id, zoe }).flatMap(spentEntries)
  for (let from = 0; from < all.length; from += 400)
    await ledger.commit({ entries: all.slice(from, from + 400) })
  await ledger.close()
  const [last] = [await database.rowCounts.last()]
  await database.close()
  const settings = { ...options.settings, MCP_PROXY_DATA_DIR: first.settings.dataDir }
  const gateway = await testGateway(t, { ...options, verify: false, settings })
  const counted = async (): Promise<void> => {
    const reading = await openDatabase(gateway.settings.databaseUrl)
    await eventually(
      () => reading.rowCounts.counted(),
      (place) => place >= last,
      30_000,
    )
    await reading.close()
  }
  await counted()
  return { gateway, zoe, counted }
}
