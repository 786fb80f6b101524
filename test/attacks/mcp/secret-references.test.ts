import { stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { asOwner } from '../../support/db/owner.ts'
import { past } from '../../support/db/raw.ts'
import { called, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'

const PATH = '/v1/admin/mcp-resources'
const KEYS = {
  OPENAI_API_KEY: 'sk-of-the-provider',
  AWS_SECRET_ACCESS_KEY: 'sk-of-the-cloud',
  MCP_SECRET_UP: 'sk-of-the-server',
}
const RULE = /must be env:MCP_SECRET_…, or file: .*below MCP_PROXY_SECRETS_DIR/

await t.test(
  'D4 who registers MCP servers cannot have the gateway’s other secrets sent to one',
  async (t) => {
    const stage = await mcpStage(t, { env: KEYS })
    const { secretsDir, dataDir } = stage.settings
    t.equal(secretsDir, join(dataDir, 'mcp-secrets'))
    t.equal((await stat(secretsDir)).mode & 0o777, 0o700)
    const server = await toolServer(t, [tool('go')])
    const outside = join(dataDir, '..', 'private')
    await writeFile(outside, 'sk-of-somebody', { mode: 0o600 })
    await symlink(outside, join(secretsDir, 'link'))
    const references = [
      ...['env:OPENAI_API_KEY', 'env:AWS_SECRET_ACCESS_KEY', 'env:PATH', 'env:MCP_PROXY_ADMIN_SECRET'],
      ...[outside, join(secretsDir, 'link'), `${secretsDir}/../key-passphrase`, '/proc/self/environ'].map(
        (path) => `file:${path}`,
      ),
    ]
    const honest = await stage.register('honest', server, {
      auth_type: 'bearer',
      auth_secret_ref: 'env:MCP_SECRET_UP',
    })
    t.equal(honest.last_error, null, 'and its own secret is read')
    await writeFile(join(secretsDir, 'key'), 'sk-in-a-file', { mode: 0o600 })
    const path = `${PATH}/${honest.resource_id}`
    const inFile = await stage.admin('PATCH', path, { auth_secret_ref: `file:${secretsDir}/key` })
    t.match(inFile.json, { last_error: null })
    t.equal(server.told.at(-1)?.headers.authorization, 'Bearer sk-in-a-file')

    const told = server.told.length
    for (const auth_secret_ref of references) {
      const fields = { auth_type: 'bearer', auth_secret_ref }
      const registered = await stage.admin('POST', PATH, { name: 'up', endpoint_url: server.url, ...fields })
      for (const { status, json } of [registered, await stage.admin('PATCH', path, fields)]) {
        t.equal(status, 422, auth_secret_ref)
        t.match(json.detail.errors, [{ field: 'auth_secret_ref', message: RULE }], auth_secret_ref)
      }
    }
    t.equal(server.told.length, told, 'nothing was sent')
  },
)

await t.test('D4 a reference of before is refused when it is read, and last_error says so', async (t) => {
  // No row says what is written into the table below.
  const stage = await mcpStage(t, { env: KEYS, verify: false })
  const server = await toolServer(t, [tool('go')])
  const up = await stage.register('up', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, up)
  t.ok((await stage.callTool(bot, 'up.go')).json.result)
  const outside = join(stage.pluginsDir, '50-llm.yaml')
  for (const reference of ['env:OPENAI_API_KEY', `file:${outside}`]) {
    const fields = `auth_type = 'bearer', auth_secret_ref = '${reference}', revision = revision + 1`
    await past(stage.settings.databaseUrl, `update mcp_resources set ${fields}`)
    const [told, calls] = [server.told.length, called(server).length]
    t.match((await stage.refresh(up)).last_error, RULE, reference)
    t.ok((await stage.callTool(bot, 'up.go')).json.error, reference)
    t.strictSame([server.told.length, called(server).length], [told, calls], 'nothing was sent')
    const patched = await stage.admin('PATCH', `${PATH}/${up.resource_id}`, { description: reference })
    t.equal(patched.status, 200, 'its other fields can still be changed')
  }
  t.notMatch(JSON.stringify(stage.log), /sk-of-/)
})

await t.test(
  'nothing goes to an address, or with a credential, that the owner of the database has written',
  async (t) => {
    const stage = await mcpStage(t, { verify: false, env: KEYS })
    const [own, evil] = [await toolServer(t, [tool('read')]), await toolServer(t, [tool('read')])]
    const files = await stage.register('files', own)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, files)
    const call = async () => (await stage.callTool(bot, 'files.read')).json
    t.match(await call(), { result: {} })
    const { databaseUrl, dataDir } = stage.settings
    const set = (columns: string) => asOwner(databaseUrl, `update mcp_resources set ${columns}`)
    // As a process that knows no connection yet, at a revision that none has seen.
    const [before, edits] = [
      `endpoint_url = '${own.url}', auth_type = 'none', auth_secret_ref = null, allowed_domains = '[]'`,
      [
        `endpoint_url = '${evil.url}'`,
        `endpoint_url = '${evil.url}', allowed_domains = '["127.0.0.1"]'`,
        `allowed_domains = '["localhost", "127.0.0.1"]'`,
        `auth_type = 'bearer', auth_secret_ref = 'env:MCP_SECRET_UP'`,
      ],
    ]
    for (const edit of edits) {
      await set(`${edit}, revision = revision + 1`)
      t.match(await call(), { error: {} }, edit)
      t.match((await stage.refresh(files)).last_error, /not those that operators have set/, edit)
      t.match(
        (await (await signedInBySecret(stage)).ask('GET', '/proxy')).text,
        'credentials of the server files',
      )
      await set(`${before}, revision = revision - 1`)
      t.match(await call(), { result: {} }, 'and put back it is called again')
    }
    t.same(evil.told, [])
    t.match(await stage.refresh(files), { last_error: null })

    const change = { endpoint_url: evil.url }
    const path = `/v1/admin/mcp-resources/${files.resource_id}`
    t.equal((await stage.admin('PATCH', path, change)).status, 200)
    t.match(await call(), { result: {} })
    t.ok(evil.told.length > 0, 'what an operator sets is called')
    await stage.close(0)
    await set(before)
    const again = await mcpStage(t, {
      verify: false,
      settings: { MCP_PROXY_DATA_DIR: dataDir, MCP_PROXY_DATABASE_URL: databaseUrl },
    })
    const told = own.told.length
    t.match((await again.callTool(bot, 'files.read')).json, { error: {} }, 'nor is an address of before')
    t.equal(own.told.length, told)
  },
)
