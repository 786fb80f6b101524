import { generateKeyPairSync } from 'node:crypto'
import { chmod, readFile, rename, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { jwtVerify } from 'jose'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { Refusal } from '../../../plugins/refusal.ts'
import { ProviderKeys } from '../../../proxy/llm/credentials/provider-keys.ts'
import { llmHandler } from '../../../proxy/llm/handler.ts'
import { openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { scratch, testGateway } from '../../support/gateway.ts'
import { facts, openai, options, receive, servicesWith } from '../../support/llm/facts.ts'
import { trusted } from '../../support/llm/trusted.ts'
import { answer, portOf, rawUpstream } from '../../support/llm/upstreams.ts'
import { eventually } from '../../support/settled.ts'

const upstream = openUpstream()
t.teardown(() => upstream.close())

const HOUR_MS = 3_600_000
const TOKEN = 'token-of-a-source-0123456789'
const SAID = `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`
const ok = answer(200, SAID)

interface CredentialStage {
  /** Moves the clock. ms. */
  at: number
  readonly keysSent: () => readonly string[]
  /** One call; what its caller gets. */
  readonly call: () => Promise<string>
  /** One call that is refused. */
  readonly refused: () => Promise<Refusal>
  readonly log: readonly string[]
  say: string
}

/** A provider whose key comes from a source, and callers of it. */
async function stageOf(t: Test, credentials: object, more: object = {}): Promise<CredentialStage> {
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(stage.say))
  const log: string[] = []
  const providerKeys = new ProviderKeys({
    upstream,
    clock: () => stage.at,
    log: pino({ base: null }, { write: (line: string) => void log.push(line) }),
    maxFetchMs: 1_000,
  })
  t.teardown(() => providerKeys.close())
  const file = options([openai(url, { api_key: '', credentials, ...more })])
  const handler = llmHandler(file, { ...servicesWith(upstream), providerKeys })
  const call = async (): Promise<string> =>
    (await receive(await handler(await facts({ body: { model: 'gpt-4o', messages: [] } })))).text
  const stage: CredentialStage = {
    at: 1_000_000,
    say: ok,
    log,
    call,
    keysSent: () =>
      seen.map(({ head }) => /^(?:authorization: Bearer|api-key:) (\S+)/im.exec(head)?.[1] ?? ''),
    refused: async () => {
      const error = await call().catch((error: unknown) => error)
      if (error instanceof Refusal) return error
      throw new Error('the call was not refused', { cause: error })
    },
  }
  return stage
}

/** A program of Node that prints what `code` evaluates to. */
const program = (code: string, ...args: string[]) => ({
  kind: 'exec',
  command: [process.execPath, '-e', `process.stdout.write(String(${code}))`, ...args],
})

type TokenAnswer = (
  form: URLSearchParams,
  asked: number,
) => { status?: number; headers?: object; body: unknown }

/** A token endpoint. */
async function tokenServer(t: Test, say: TokenAnswer, tls?: { cert: string; key: string }) {
  const forms: URLSearchParams[] = []
  const answered = async (req: IncomingMessage, res: import('node:http').ServerResponse) => {
    const form = new URLSearchParams((await buffer(req)).toString())
    forms.push(form)
    const { status = 200, headers = {}, body } = say(form, forms.length)
    if (body === undefined) return
    res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
  }
  const listener = (req: IncomingMessage, res: import('node:http').ServerResponse) => void answered(req, res)
  const server = tls ? createTlsServer(tls, listener) : createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http${tls ? 's' : ''}://127.0.0.1:${portOf(server.address())}/token`, forms }
}

const oauth2 = (token_url: string) => ({
  kind: 'oauth2',
  token_url,
  client_id: 'id',
  client_secret: 'secret-of-the-client',
  scope: 'https://a.example/.default',
})

t.test(
  'a key file that has changed on disk is read again within a second, and one that is gone refuses',
  async (t) => {
    const path = join(await scratch(t), 'key')
    await writeFile(path, 'first-key-of-the-file\n', { mode: 0o600 })
    const stage = await stageOf(t, { kind: 'file', path }, { server: 'azure' })
    await Promise.all([stage.call(), stage.call()])
    await writeFile(`${path}.new`, 'second-key-of-the-file', { mode: 0o600 })
    await rename(`${path}.new`, path)
    stage.at += 1_000
    await stage.call()
    t.same(stage.keysSent(), ['first-key-of-the-file', 'first-key-of-the-file', 'second-key-of-the-file'])
    await chmod(path, 0o604)
    stage.at += 1_000
    const { reason, status, message } = await stage.refused()
    t.match(
      { reason, status, message },
      { reason: 'provider_not_configured', status: 503, message: /could not be fetched/ },
    )
    t.equal(stage.keysSent().length, 3, 'nothing was sent without a key')
    await chmod(path, 0o600)
    stage.at += 1_000
    await stage.call()
    t.match(stage.log.join(''), /open to others.*can be fetched again/s)
  },
)

t.test('a program gives the key: no shell, none but the named variables, and its end counts', async (t) => {
  process.env.NAMED_FOR_A_KEY = 'named'
  const code =
    'JSON.stringify({ token: [process.argv[1], process.env.NAMED_FOR_A_KEY, Object.keys(process.env).length].join("/"), expires_at: 2800 })'
  const stage = await stageOf(t, { ...program(code, '$HOME;`id`'), env: ['NAMED_FOR_A_KEY'] })
  await stage.call()
  t.same(stage.keysSent(), ['$HOME;`id`/named/1'])
  stage.at = 2_800_000
  const { reason } = await stage.refused()
  t.equal(reason, 'provider_not_configured', 'the same token again has expired')
})

for (const [what, credentials, problem] of [
  [
    'that fails',
    {
      kind: 'exec',
      command: [
        process.execPath,
        '-e',
        `console.log('${TOKEN}'); console.error('${TOKEN}'); process.exitCode = 3`,
      ],
    },
    /ended with 3/,
  ],
  ['that is not there', { kind: 'exec', command: ['/nowhere/program'] }, /cannot be started \(ENOENT\)/],
  ['that prints too much', program(`'${TOKEN}'.repeat(1000)`), /more than 16384 bytes/],
  ['that prints two words', program(`'${TOKEN} b'`), /no token of printable ASCII/],
  ['that prints broken JSON', program(`'{"token":"${TOKEN}'`), /JSON that cannot be read/],
] as const) {
  t.test(`a program ${what} is 503, asked once a second, and nothing that it said is told`, async (t) => {
    const stage = await stageOf(t, credentials)
    const refusals = await Promise.all([stage.refused(), stage.refused()])
    for (const { reason, status, message } of [...refusals, await stage.refused()]) {
      t.match({ reason, status }, { reason: 'provider_not_configured', status: 503 })
      t.notMatch(message, TOKEN)
    }
    t.match(stage.log.join(''), problem)
    t.notMatch(stage.log.join(''), TOKEN)
    t.equal(stage.log.length, 1)
    t.same(stage.keysSent(), [])
  })
}

t.test(
  'fifty calls at once fetch one token, and another one at 80 % of its life while the first is sent',
  async (t) => {
    const { url, forms } = await tokenServer(
      t,
      (_form, asked) => ({ body: { access_token: `${TOKEN}-${asked}`, expires_in: 3600 } }),
      await trusted(t),
    )
    const stage = await stageOf(t, oauth2(url))
    const fifty = () => Promise.all(Array.from({ length: 50 }, stage.call))
    await fifty()
    t.equal(forms.length, 1)
    t.same(Object.fromEntries(forms[0] ?? []), {
      grant_type: 'client_credentials',
      client_id: 'id',
      client_secret: 'secret-of-the-client',
      scope: 'https://a.example/.default',
    })
    stage.at += HOUR_MS * 0.79
    await fifty()
    t.equal(forms.length, 1)
    stage.at += HOUR_MS * 0.02
    await fifty()
    t.equal(forms.length, 2, 'once for all')
    stage.at += HOUR_MS * 1.1
    await fifty()
    t.equal(forms.length, 3, 'those that have expired are waited for')
    const sent = stage.keysSent()
    t.same(new Set(sent.slice(0, 100)), new Set([`${TOKEN}-1`]))
    t.same(new Set(sent.slice(150)), new Set([`${TOKEN}-3`]))
  },
)

t.test('a token endpoint that redirects, is slow, refuses or answers nothing of use is 503', async (t) => {
  const inside = await tokenServer(t, () => ({ body: { access_token: TOKEN } }))
  for (const [say, problem] of [
    [{ status: 307, headers: { location: inside.url }, body: {} }, /redirects \(307\)/],
    [
      { status: 401, body: { error: 'invalid_client', error_description: TOKEN } },
      /answered 401, invalid_client/,
    ],
    [{ status: 400, body: { error: `${TOKEN}!`, error_description: TOKEN } }, /answered 400"/],
    [{ body: { access_token: `${TOKEN}\n` } }, /gave no access_token/],
    [{ body: [TOKEN] }, /gave no access_token/],
    [{ body: { access_token: TOKEN, pad: 'x'.repeat(20_000) } }, /gave no access_token/],
    [{ body: undefined }, /gave no answer in time/],
  ] as const) {
    const { url, forms } = await tokenServer(t, () => say)
    const stage = await stageOf(t, oauth2(url))
    const began = performance.now()
    const { reason, status } = await stage.refused()
    t.match({ reason, status }, { reason: 'provider_not_configured', status: 503 })
    t.ok(performance.now() - began < 20_000)
    t.match(stage.log.join(''), problem)
    t.notMatch(stage.log.join(''), TOKEN)
    t.same(stage.keysSent(), [])
    t.equal(forms.length, 1)
  }
  t.equal(inside.forms.length, 0, 'nobody was asked in its name')
})

t.test('a service account of Google signs for a token', async (t) => {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const { url, forms } = await tokenServer(t, () => ({ body: { access_token: TOKEN, expires_in: 3600 } }))
  const path = join(await scratch(t), 'account.json')
  const account = {
    type: 'service_account',
    client_email: 'bot@project.example',
    private_key_id: 'kid-1',
    private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
    token_uri: url,
  }
  await writeFile(path, JSON.stringify(account), { mode: 0o600 })
  const stage = await stageOf(t, { kind: 'google', key_file: path })
  stage.at = Date.now()
  await stage.call()
  t.same(stage.keysSent(), [TOKEN])
  const [form] = forms
  t.equal(form?.get('grant_type'), 'urn:ietf:params:oauth:grant-type:jwt-bearer')
  const { payload, protectedHeader } = await jwtVerify(form?.get('assertion') ?? '', publicKey, {
    audience: url,
  })
  t.match(payload, { iss: 'bot@project.example', scope: /cloud-platform/ })
  t.equal(protectedHeader.kid, 'kid-1')
  for (const [text, problem] of [
    ['{"type":"authorized_user"}', /none of a service account/],
    [JSON.stringify({ ...account, token_uri: 'http://10.0.0.1/token' }), /no https token_uri/],
    [JSON.stringify({ ...account, private_key: 'no key' }), /private key .* cannot be read/],
    ['no JSON', /cannot be read/],
  ] as const) {
    await writeFile(path, text)
    const spoiled = await stageOf(t, { kind: 'google', key_file: path })
    t.equal((await spoiled.refused()).reason, 'provider_not_configured')
    t.match(spoiled.log.join(''), problem)
  }
})

t.test(
  'a token that a provider quotes, or refuses, is told to nobody, and another one is fetched',
  async (t) => {
    const { url, forms } = await tokenServer(t, (_form, asked) => ({
      body: { access_token: `${TOKEN}-${asked}`, expires_in: 3600 },
    }))
    const stage = await stageOf(t, oauth2(url))
    for (const status of [400, 500, 200]) {
      stage.say = answer(status, JSON.stringify({ error: { message: `not with ${TOKEN}-1` } }))
      const refusal = await stage.refused()
      t.notMatch(JSON.stringify([refusal.message, refusal.detail, refusal.report]), TOKEN, `${status}`)
    }
    stage.say = answer(401, JSON.stringify({ error: { message: 'expired' } }))
    t.equal((await stage.refused()).reason, 'provider_auth_failed')
    stage.say = ok
    await stage.call()
    t.equal(forms.length, 2)
    t.equal(stage.keysSent().at(-1), `${TOKEN}-2`)
    stage.say = answer(500, JSON.stringify({ error: { message: `was it ${TOKEN}-1` } }))
    t.notMatch((await stage.refused()).message, TOKEN, 'nor the one before')
  },
)

t.test('through a gateway: the token reaches the provider, and no row, log or answer', async (t) => {
  const { url } = await tokenServer(t, () => ({ body: { access_token: TOKEN, expires_in: 3600 } }))
  const gateway = await testGateway(t, {
    files: {
      '50-llm.yaml': `plugin: llm
default_provider: cloud
providers:
  - name: cloud
    dialect: openai
    server: vllm
    base_url: UPSTREAM/v1
    models: ["gpt-*"]
    credentials: { kind: oauth2, token_url: "${url}", client_id: id, client_secret: secret-of-the-client }
`,
    },
  })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const body = { model: 'gpt-test', messages: [] }
  const { status, text } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body })
  t.equal(status, 200)
  t.equal(gateway.upstream.seen[0]?.headers.authorization, `Bearer ${TOKEN}`)
  const { json } = await gateway.call(bot, 'GET', '/v1/models/gpt-test')
  t.same(json.wires, { chat: 'direct', responses: 'direct', messages: 'direct' })
  const { text: providers } = await gateway.admin('GET', '/v1/admin/providers')
  const told = JSON.stringify([text, providers, await gateway.rows(), gateway.log])
  for (const secret of [TOKEN, 'secret-of-the-client']) t.notMatch(told, secret)
  t.notMatch(await readFile(join(gateway.settings.dataDir, 'gateway.log'), 'utf8').catch(() => ''), TOKEN)
})

t.test('a program that is late is ended with all that it has started', async (t) => {
  const path = join(await scratch(t), 'pid')
  const script = 'sleep 300 & echo $$ > "$0"; wait'
  const stage = await stageOf(t, { kind: 'exec', command: ['/bin/sh', '-c', script, path], env: ['PATH'] })
  t.equal((await stage.refused()).reason, 'provider_not_configured')
  const group = Number(await readFile(path, 'utf8'))
  const lives = (): boolean => {
    try {
      return process.kill(-group, 0)
    } catch {
      return false
    }
  }
  t.notOk(await eventually(lives, (one) => !one))
  t.match(stage.log.join(''), /took too long/)
})
