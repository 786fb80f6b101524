import t from 'tap'
import { CHOOSE_THEMSELVES, SAME_ON_EVERY_ENGINE, testFiles } from './support/db/on-both-engines.ts'

// `TEST_ENGINE=postgres make test` runs what reaches the choice of the engine, and nothing else: a test that has a
// database and does not reach it would pass there without having been asked. So each is named here, with the reason.
const ONE_ENGINE: Readonly<Record<string, string>> = {
  'test/db/ledger/': 'the ledger on SQLite; test/db/postgres has its counterparts',
  ...CHOOSE_THEMSELVES,
  ...SAME_ON_EVERY_ENGINE,
  'test/db/migrate.test.ts':
    'the tables that SQLite has after each migration; test/db/postgres/upgrade.test.ts',
  'test/db/mcp/migration.test.ts': 'tables of a SQLite file of before',
  'test/docs/verify-py-rules.test.ts': 'rows that are made, not stored',
  'test/plugins/audit/outcomes.test.ts': 'transactions in a write-ahead log',
  'test/bench/': 'the bench measures SQLite',
  'test/scripts/demo/demo.test.ts': 'the demonstration makes its own SQLite file',
  'test/scripts/verbs/verify.test.ts': 'a SQLite file; verify-postgres.test.ts beside it',
  'test/scripts/verbs/verify-postgres.test.ts': 'PostgreSQL alone',
  'test/scripts/verbs/migrate.test.ts': 'both engines, one after the other',
}
/** They reach a part of the database and open none. */
const OPEN_NONE = [
  'test/certs/timestamps/judge.test.ts',
  'test/db/mcp/authority.test.ts',
  'test/docs/aisvs.test.ts',
  'test/docs/facts.test.ts',
  'test/layers.test.ts',
  'test/plugins/policy/config.test.ts',
  'test/proxy/admin/approvals.test.ts',
  'test/proxy/wiring/configuration.test.ts',
  'test/proxy/boot/settings.test.ts',
  'test/proxy/export/sinks.test.ts',
  'test/scripts/print.test.ts',
  'test/scripts/verbs/costs.test.ts',
  'test/scripts/verbs/translate.test.ts',
  'test/scripts/verifying/',
]

const files = testFiles()
const reasons = [...Object.keys(ONE_ENGINE), ...OPEN_NONE]

t.test('every test that has a database runs on both engines, or says why it does not', (t) => {
  const alone = files.filter(({ hasDatabase, runsOnBoth }) => hasDatabase && !runsOnBoth)
  const unexplained = alone
    .map(({ file }) => file)
    .filter((file) => !reasons.some((reason) => file.startsWith(reason)))
  t.same(unexplained, [])
  const idle = reasons.filter((reason) => !alone.some(({ file }) => file.startsWith(reason)))
  t.same(idle, [], 'no reason outlives its test')
  t.end()
})

t.test('what a test reaches is found', (t) => {
  const both = new Set(files.filter(({ runsOnBoth }) => runsOnBoth).map(({ file }) => file))
  // By an import, by the gateway's process, and through three files.
  for (const file of ['spec/6-events', 'proxy/main', 'attacks/history', 'proxy/admin/operators/chain'])
    t.ok(both.has(`test/${file}.test.ts`), file)
  t.notOk(both.has('test/certs/x509/chain.test.ts'))
  t.ok(both.size > 130, `${both.size} of ${files.length} files`)
  t.end()
})
