import { execFileSync } from 'node:child_process'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { ADMIN_SECRET, CHAT, scratch, testGateway } from '../../support/gateway.ts'
import { run } from '../../support/run.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const identityIn = async (directory: string, id: string) => ({
  id,
  cert: await readFile(join(directory, 'agent.crt'), 'utf8'),
  key: await readFile(join(directory, 'agent.key'), 'utf8'),
})

await t.test('make agent beside a running gateway: the identity works at once', async (t) => {
  const gateway = await testGateway(t)
  const out = join(await scratch(t), 'bot')
  const env = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
  const ran = await sallyport(['agent', 'bot', '--caps', 'llm.chat, http.get', '--out', out], env)
  t.equal(ran.code, 0, ran.err)
  t.match(ran.out, /enrolled acme::bot \(capabilities: llm\.chat, http\.get\)/)
  t.match(ran.out, /curl --noproxy '\*' --cacert .* --cert .* --key /)
  for (const name of ['agent.crt', 'agent.key', 'org-ca.crt', 'ca-chain.pem']) {
    t.equal((await stat(join(out, name))).mode & 0o777, 0o600, name)
  }
  t.equal(await readFile(join(out, 'org-ca.crt'), 'utf8'), gateway.ca)
  const chain = await gateway.call(null, 'GET', '/pki/ca-chain.pem')
  t.equal(await readFile(join(out, 'ca-chain.pem'), 'utf8'), chain.text, 'what the Python helper looks for')
  const { url } = JSON.parse(await readFile(join(out, 'gateway.json'), 'utf8'))
  t.equal(url, gateway.url, 'whichever port the running gateway has')
  t.match(ran.out, `${gateway.url}/v1/chat/completions`)
  const answered = await gateway.call(await identityIn(out, 'acme::bot'), 'POST', '/v1/chat/completions', {
    body: CHAT,
  })
  t.equal(answered.status, 200)
  const [row] = await gateway.rows({ action: 'agent.created' })
  t.equal(row?.detail.via, 'socket', 'the ledger says by which door')
})

await t.test('make agent without a gateway: it is there when one starts', async (t) => {
  const root = await scratch(t)
  const env = { MCP_PROXY_DATA_DIR: join(root, 'data') }
  const ran = await sallyport(['agent', 'bot', '--out', join(root, 'bot')], env)
  t.equal(ran.code, 0, ran.err)
  const exported = await sallyport(['ca-export'], env)
  t.equal(exported.out, await readFile(join(root, 'bot', 'org-ca.crt'), 'utf8'))
  const certs = await sallyport(['certs'], env)
  t.match(certs.out, /root\.crt: O=acme, CN=acme Root CA, valid to .*\n.*intermediate\.crt.*\n.*server\.crt/)
  const verified = await sallyport(['verify-audit', join(root, 'data', 'sallyport.db')])
  t.equal(verified.code, 0, verified.out + verified.err)
  t.equal((await stat(join(root, 'data'))).mode & 0o777, 0o700)
})

await t.test('make agent refuses in one sentence, and leaves nothing half-done', async (t) => {
  const root = await scratch(t)
  // Beside a gateway: that the verb opens the data directory itself where there is none, the test above
  // shows.
  const env = { MCP_PROXY_DATA_DIR: (await testGateway(t)).settings.dataDir }
  const agent = (...args: string[]) => sallyport(['agent', ...args], env)
  t.match(await agent(''), { code: 1, err: /^sallyport: give one name: / })
  t.match(await agent('bot', '--caps', 'LLM.CHAT', '--out', join(root, 'bot')), {
    code: 1,
    err: /^sallyport: capabilities\[0\]: must match .*\n$/,
  })
  t.match(await agent('bot', '--wrong'), { code: 1, err: /^sallyport: .*--wrong/ })
  t.equal((await agent('bot', '--out', join(root, 'bot'))).code, 0, 'the name is still free')
  t.match(await agent('other', '--out', join(root, 'bot')), { code: 1, err: /agent\.key exists already/ })
  t.match(await agent('bot', '--out', join(root, 'bot-2')), { code: 1, err: /^sallyport: .*exists/i })
})

await t.test(
  '§5.1 make admin-secret sets a secret that works, and ends the environment variable',
  async (t) => {
    const gateway = await testGateway(t)
    const env = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
    const ran = await sallyport(['admin-secret'], env)
    t.equal(ran.code, 0, ran.err)
    const secret = ran.out.trim()
    const list = async (value: string) =>
      (await gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': value } })).status
    t.strictSame([await list(ADMIN_SECRET), await list(secret)], [403, 200])
    const own = await sallyport(['admin-secret', '--stdin'], env, 'my-own-operator-secret\n')
    t.match(own, { code: 0, out: 'the operator secret is set\n' })
    t.strictSame([await list(secret), await list('my-own-operator-secret')], [403, 200])
    t.match(await sallyport(['admin-secret', '--stdin'], env, 'short\n'), {
      code: 1,
      err: /12 to 72 bytes/,
    })
  },
)

await t.test('every verb has --help', async (t) => {
  for (const verb of [
    'agent',
    'admin-secret',
    'ca-export',
    'certs',
    'check-config',
    'verify-audit',
    'export-audit',
  ]) {
    t.match(await sallyport([verb, '--help']), { code: 0, out: /^usage: sallyport / }, verb)
  }
  t.match(await run('proxy/main.ts', ['--help']), { code: 0, out: /^usage: node proxy\/main/ })
})

await t.test('a lost CA or passphrase stops the boot: never a second one beside the first', async (t) => {
  const root = await scratch(t)
  const data = join(root, 'data')
  const env = { MCP_PROXY_DATA_DIR: data }
  await sallyport(['agent', 'bot', '--out', join(root, 'bot')], env)
  execFileSync('mv', [join(data, 'ca'), join(root, 'ca')])
  t.match(await sallyport(['certs'], env), { code: 1, err: /there are principals, but the CA/ })
  execFileSync('mv', [join(root, 'ca'), join(data, 'ca')])
  const passphrase = await readFile(join(data, 'key-passphrase'), 'utf8')
  execFileSync('rm', [join(data, 'key-passphrase')])
  t.match(await sallyport(['certs'], env), { code: 1, err: /its passphrase is not in/ })
  await writeFile(join(data, 'key-passphrase'), passphrase, { mode: 0o644 })
  t.match(await sallyport(['certs'], env), { code: 1, err: /chmod 600/ })
  execFileSync('chmod', ['600', join(data, 'key-passphrase')])
  t.equal((await sallyport(['certs'], env)).code, 0)
  t.match(await sallyport(['certs'], { ...env, MCP_PROXY_ORG: 'other' }), {
    code: 1,
    err: /other/,
  })
})
