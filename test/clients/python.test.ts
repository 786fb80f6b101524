import { writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { readIdentity } from '../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../scripts/client/sidecar.ts'
import { clientSession } from '../../scripts/client/signing/session.ts'
import { shellExports } from '../../scripts/verbs/env.ts'
import { sectionOf } from '../support/clients/alone.ts'
import { fileBeside, identityFiles, run } from '../support/clients/files.ts'
import { identityDirectory } from '../support/clients/identity.ts'
import { mockProvider, SAID } from '../support/clients/sdk.ts'
import { CHAT, testGateway } from '../support/gateway.ts'

// Python's own http.client and ssl: no package, and neither Node's TLS nor curl's.
const CLIENT = `
import http.client, json, ssl, sys
ca, cert, key, port, body = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
if cert:
    context.load_cert_chain(cert, key)
connection = http.client.HTTPSConnection('localhost', int(port), context=context, timeout=60)
connection.request('POST', '/v1/chat/completions', body, {'content-type': 'application/json'})
response = connection.getresponse()
try:
    text, ended = response.read(), 'whole'
except http.client.IncompleteRead as cut:
    text, ended = cut.partial, 'cut'
print(json.dumps({'status': response.status, 'text': text.decode(), 'ended': ended}))
`

const { code } = await run('python3', ['--version']).catch(() => ({ code: null }))
const skip = code === 0 ? false : 'python3 is not installed here'

await t.test(
  '§4 Python’s standard library is a client: JSON, a stream, and the refusals',
  { skip },
  async (t) => {
    const { files } = await mockProvider(t)
    const gateway = await testGateway(t, { files })
    const bot = identityFiles(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const script = fileBeside(bot, 'client.py', CLIENT)
    const { port } = new URL(gateway.url)
    const post = async (body: object, { cert, key } = { cert: bot.cert, key: bot.key }) => {
      const ran = await run('python3', [script, bot.ca, cert, key, port, JSON.stringify(body)])
      if (ran.code !== 0) throw new Error(ran.err)
      const answer: { status: number; text: string; ended: string } = JSON.parse(ran.out)
      return answer
    }

    const whole = await post(CHAT)
    t.match(whole, { status: 200, ended: 'whole' })
    t.equal(JSON.parse(whole.text).choices[0].message.content, SAID)

    const streamed = await post({ ...CHAT, stream: true })
    t.match(streamed, { status: 200, ended: 'whole' })
    t.match(streamed.text, /\ndata: \[DONE\]\n+$/)
    t.equal(saidIn(streamed.text), SAID)

    const cut = await post({ ...CHAT, messages: [{ role: 'user', content: 'break off' }], stream: true })
    t.match(cut, { status: 200, ended: 'cut' }, 'T4 a stream that was cut does not look whole')
    t.match(cut.text, /"code":"provider_failed"/)
    t.notMatch(cut.text, '[DONE]')

    const stranger = await post(CHAT, { cert: '', key: '' })
    t.equal(stranger.status, 401)
    t.match(JSON.parse(stranger.text), { reason: 'certificate_required' })

    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
    const denied = await post(CHAT)
    t.equal(denied.status, 403)
    t.match(JSON.parse(denied.text), { reason: 'capability_missing' })
  },
)

/** Runs the first lines of what `make env` prints for Python, and then a program; gives what that prints. */
async function recipe(t: Test, first: RegExp, program: (url: string) => readonly string[]): Promise<string> {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const bot = identityFiles(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const identity = { directory: dirname(bot.ca), url: gateway.url }
  const section = sectionOf(
    shellExports({ port: 8787, identity, direct: false }),
    'Python with the certificate',
  )
  const [lines = ''] = first.exec(section.replaceAll(/^# {3}/gm, '')) ?? []
  const script = fileBeside(bot, 'recipe.py', [lines, ...program(gateway.url)].join('\n'))
  // What httpx drops it warns of, at most.
  const python = ['python3', '-W', 'error::DeprecationWarning']
  const ran = await run('env', ['no_proxy=localhost', ...python, script])
  if (ran.code !== 0) throw new Error(ran.err)
  return ran.out
}

/** The lines up to the one that first uses what is not Python's own. */
const CONTEXT = /^import ssl\n.*\ncontext\.load_cert_chain.*\n/

await t.test(
  'the lines that make env prints make a context that presents the certificate',
  { skip },
  async (t) => {
    const out = await recipe(t, CONTEXT, (url) => [
      'import urllib.request',
      `print(urllib.request.urlopen("${url}/v1/models", context=context).status)`,
    ])
    t.equal(out, '200\n')
  },
)

for (const client of ['httpx', 'httpx2']) {
  await t.test(`${client} takes that context`, { skip: await lacking(client) }, async (t) => {
    const out = await recipe(t, CONTEXT, (url) => [
      `import ${client}`,
      `print(${client}.Client(verify=context).get("${url}/v1/models").status_code)`,
    ])
    t.equal(out, '200\n')
  })
}

const sdks = await lacking('openai', 'anthropic')
await t.test('the OpenAI and Anthropic SDKs speak by the lines as they are', { skip: sdks }, async (t) => {
  const out = await recipe(t, /^.+$/s, () => [
    '',
    'chat, hello = client.chat.completions, [{"role": "user", "content": "hello"}]',
    'print(chat.create(model="gpt-test", messages=hello).choices[0].message.content)',
    'pieces = chat.create(model="gpt-test", messages=hello, stream=True)',
    'print("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices))',
    'print(claude.messages.create(model="claude-test", max_tokens=99, messages=hello).content[0].text)',
  ])
  t.equal(out, `${SAID}\n`.repeat(3))
})

/** The libraries by themselves, as programs that call `post` with a body and stream one. */
const LIBRARIES = {
  requests: `
import requests
session = requests.Session()
session.trust_env = False
if ca:
    session.verify, session.cert = ca, (cert, key)
post = lambda body: session.post(url, json=body, timeout=60)
def stream(body):
    with session.post(url, json=body, timeout=60, stream=True) as answer:
        return [line.decode() for line in answer.iter_lines() if line]
`,
  httpx: `
import httpx, ssl
context = ssl.create_default_context(cafile=ca) if ca else False
if ca:
    context.load_cert_chain(cert, key)
client = httpx.Client(verify=context, timeout=60, trust_env=False)
post = lambda body: client.post(url, json=body)
def stream(body):
    with client.stream("POST", url, json=body) as answer:
        return [line for line in answer.iter_lines() if line]
`,
} as const

for (const library of ['requests', 'httpx'] as const) {
  await t.test(
    `${library} gets answers, a stream and the refusal of 8 MB, by the certificate and by the sidecar`,
    { skip: await lacking(library) },
    async (t) => {
      const { files } = await mockProvider(t)
      const gateway = await testGateway(t, { files })
      const directory = await identityDirectory(t, gateway)
      const session = clientSession(readIdentity(directory))
      const sidecar = await startSidecar(session, '127.0.0.1', 0)
      t.teardown(() => sidecar.close(0).then(() => session.close()))
      const program = async (...does: readonly string[]): Promise<string> => {
        const script = join(directory, `${library}-${does.length}.py`)
        const head = [
          'import json, sys',
          'url, ca, cert, key = sys.argv[1:]',
          `chat = ${JSON.stringify(CHAT)}`,
        ]
        await writeFile(script, [...head, LIBRARIES[library], ...does].join('\n'))
        return script
      }
      const calls = await program(
        'print(post(chat).json()["choices"][0]["message"]["content"])',
        'print(stream({**chat, "stream": True})[-1])',
      )
      // Written whole before anything is read.
      const long = await program(
        'answer = post({**chat, "pad": "x" * 8_000_000})',
        'print(answer.status_code)',
        'print(answer.json()["reason"])',
      )
      const own = ['org-ca.crt', 'agent.crt', 'agent.key'].map((name) => join(directory, name))
      const doors = [
        [`${gateway.url}/v1/chat/completions`, ...own],
        [`${sidecar.url}/v1/chat/completions`, '', '', ''],
      ]
      for (const door of doors)
        t.match(await run('python3', [calls, ...door]), { out: `${SAID}\ndata: [DONE]\n`, err: '' })
      await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
      for (const door of doors)
        t.match(await run('python3', [long, ...door]), { out: '403\ncapability_missing\n', err: '' })
    },
  )
}

/** For tap: which of these packages is not installed, or false. */
async function lacking(...packages: readonly string[]): Promise<string | false> {
  if (skip) return skip
  const { code } = await run('python3', ['-c', `import ${packages.join(', ')}`])
  return code === 0 ? false : `not installed here: pip install ${packages.join(' ')}`
}

function saidIn(stream: string): string {
  const events = [...stream.matchAll(/^data: (\{.*)$/gm)].map(([, event = '']) => JSON.parse(event))
  return events.map(({ choices }) => choices[0].delta.content ?? '').join('')
}
