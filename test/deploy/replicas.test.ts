import { execFileSync } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { without } from '../support/certs/openssl.ts'
import { cluster } from '../support/db/postgres/cluster.ts'
import { raw } from '../support/db/postgres/replica.ts'
import { ROOT } from '../support/deploy/package-tree.ts'
import { agentOf, ask, CHAT, scratch } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'
import { sallyport } from '../support/run.ts'
import { testUpstream } from '../support/upstream.ts'

const DIRECTORY = join(ROOT, 'deploy')
const sql = (name: string): string => readFileSync(join(DIRECTORY, name), 'utf8')
const server = await cluster()

t.test(
  'two gateways serve as compose and the chart start them: by files of mode 0440, as a role that owns nothing',
  async (t) => {
    const root = await scratch(t)
    const url = await server.fresh()
    await raw(url, sql('postgres/roles.sql'))
    const file = (name: string, text: string): string => {
      const path = join(root, name)
      writeFileSync(path, `${text}\n`)
      chmodSync(path, 0o440)
      return path
    }
    const as = (role: string): string => file(`${role}-url`, url.replace('user=postgres', `user=${role}`))
    const owner = {
      MCP_PROXY_DATA_DIR: join(root, 'migrate'),
      MCP_PROXY_DATABASE_URL_FILE: as('sallyport_owner'),
    }
    const up = ['migrate', 'up', '--grants', join(DIRECTORY, 'postgres/grants.sql')]
    t.match(await sallyport(up, owner), { code: 0, err: '' })

    const { MCP_PROXY_ADMIN_SECRET: _, ...env } = await environment(root, (await testUpstream(t)).url)
    const shared = {
      ...env,
      MCP_PROXY_DATABASE_URL_FILE: as('sallyport_gateway'),
      MCP_PROXY_KEY_PASSPHRASE_FILE: file('passphrase', 'p'.repeat(32)),
      MCP_PROXY_METRICS_TOKEN_FILE: file('token', 'm'.repeat(32)),
      MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:0',
    }
    const started = ['a', 'b'].map((name) => {
      const replica = { ...shared, MCP_PROXY_DATA_DIR: join(root, name) }
      return { env: replica, process: startProcess(t, replica) }
    })
    const urls = await Promise.all(started.map(({ process }) => process.ready))
    for (const { env: replica } of started)
      t.match(await sallyport(['health'], replica), { code: 0, err: '' })

    const [first] = started
    const out = join(root, 'agents/probe')
    t.match(await sallyport(['agent', 'probe', '--caps', 'llm.chat', '--out', out], first?.env), { code: 0 })
    const part = (name: string): string => readFileSync(join(out, name), 'utf8')
    for (const url of urls) {
      const agent = agentOf(part('org-ca.crt'), {
        id: 'acme::probe',
        cert: part('agent.crt'),
        key: part('agent.key'),
      })
      const answer = await ask(`${url}/v1/chat/completions`, 'POST', { agent, body: CHAT })
      agent.destroy()
      t.equal(answer.status, 200, answer.text)
    }
    for (const { process } of started) {
      process.child.kill('SIGTERM')
      t.match(await process.ended, { code: 0 })
    }
    const { code, out: verdict, err } = await sallyport(['verify', url])
    t.equal(code, 0, verdict + err)
  },
)

t.test('the roles of compose log in by what secrets.sh has made', { skip: without('psql') }, async (t) => {
  const url = await server.fresh()
  const root = await scratch(t)
  for (const name of ['database_owner', 'database_gateway']) writeFileSync(join(root, name), `${name}-word`)
  const text = sql('compose/passwords.sql').replaceAll('/run/secrets', root)
  execFileSync('psql', ['--no-psqlrc', '-v', 'ON_ERROR_STOP=1', '-q', url], { input: text, stdio: 'pipe' })
  const held = `do $$ begin
    if (select count(*) from pg_authid where rolname in ('sallyport_owner', 'sallyport_gateway') and rolpassword like 'SCRAM-SHA-256$%') <> 2
    then raise 'a role has no password'; end if; end $$`
  await t.resolves(raw(url, held))
})
