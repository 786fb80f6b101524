import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CHAT, scratch, testGateway } from '../../support/gateway.ts'
import { sallyport } from '../../support/run.ts'
import { eventually } from '../../support/settled.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const TOMORROW = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10)

t.test('sallyport evidence packs a period, and records who has reviewed it', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (let call = 0; call < 3; call += 1)
    await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  const checkpoint = await eventually(
    async () => (await gateway.call(bot, 'GET', '/v1/audit/checkpoint')).text,
    (text) => /^[1-9]/m.test(text),
  )
  const here = {
    MCP_PROXY_DATA_DIR: gateway.settings.dataDir,
    MCP_PROXY_DATABASE_URL: gateway.settings.databaseUrl,
  }
  const file = join(await scratch(t), 'pack.zip')
  const evidence = (...args: readonly string[]) => sallyport(['evidence', ...args], here)

  const key = (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()
  t.match(await evidence('--since', '2026-01-01', '--until', TOMORROW, '--out', file), { code: 0, err: '' })
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.match(await allVerifiers(t)(file, '--key', key), { code: 0, last: 'VERIFIED' })

  const kept = readFileSync(file)
  t.match(await evidence('--out', file), { code: 1, err: /EEXIST/ })
  t.same(readFileSync(file), kept, 'a file that is there stays as it is')
  for (const [args, err] of [
    [['--since', 'ever'], /--since must be RFC 3339 or a date, got "ever"/],
    [['--since', TOMORROW, '--until', '2026-01-01'], /later/],
    [['--reviewed', '1'], /--since and --until/],
    [['--reviewed', 'x', '--since', '2026-01-01', '--until', TOMORROW], /must be a number of rows/],
    [
      ['--reviewed', '99999999', '--since', '2026-01-01', '--until', TOMORROW],
      /No checkpoint of 99999999 rows/,
    ],
    [['--note', 'x'], /--note needs --reviewed/],
  ] as const) {
    const other = `${file}.other`
    t.match(await evidence(...args, '--out', other), { code: 1, out: '', err })
    t.notOk(existsSync(other), 'and nothing is half-done')
  }
  const size = checkpoint.split('\n')[1] ?? ''
  const reviewed = ['--reviewed', size, '--since', '2026-01-01', '--until', TOMORROW, '--note', 'Q4']
  t.match(await evidence(...reviewed), { code: 0, out: /^recorded: / })
  t.match(
    (await gateway.rows()).filter(({ action }) => action === 'audit.reviewed'),
    [{ principal_id: /^socket:\d+$/, detail: { checkpoint: { size: Number(size) }, note: 'Q4' } }],
  )
  writeFileSync(file, 'PK')
  t.equal((await allVerifiers(t)(file)).code, 9, 'what is no pack is told from one')
})
