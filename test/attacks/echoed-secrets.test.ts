import { brotliCompressSync, gzipSync } from 'node:zlib'
import t from 'tap'
import { quotesSecret, secretTraces } from '../../plugins/secrets/traces.ts'
import { CHAT } from '../support/gateway.ts'
import { error, result, sendJson, sse, type Told } from '../support/mcp/raw-upstream.ts'
import { legacyWith, mcpStage, tool, toolServer } from '../support/mcp/stage.ts'
import { settledCalls } from '../support/settled.ts'
import { BROKEN_SPELLINGS, SPELLINGS } from '../support/spellings.ts'
import type { Answer } from '../support/upstream.ts'

// All of them: test/plugins/secrets/traces.test.ts.
const WRITERS = ['Gson', 'a text in a text', 'percent codes', 'base64 of a header', 'hexadecimal capitals']
const WRITTEN = Object.entries(SPELLINGS).filter(([writer]) => WRITERS.includes(writer))

const SECRET = 'token/a+b=c&d<e>of-the-operator=='
const LLM_FILE = `plugin: llm
default_provider: openai
providers:
  - name: openai
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: ${JSON.stringify(SECRET)}
    headers: { http-referer: "https://intranet.acme.example/assistant", x-tenant: "Basic ${Buffer.from('tenant:its-password-here').toString('base64')}" }
`

const stage = await mcpStage(t, { env: { MCP_SECRET_UP: SECRET }, files: { '50-llm.yaml': LLM_FILE } })
const TOOLS = [tool('go')]
const server = await toolServer(t, TOOLS)
const resource = await stage.register('up', server, {
  auth_type: 'bearer',
  auth_secret_ref: 'env:MCP_SECRET_UP',
})
const bot = await stage.enroll('bot', ['mcp.tools.call', 'llm.chat'])
await stage.bind(bot, resource)

/** Tells whether a text gives away so much of the secret that the rest is a guess. */
const givesAway = (text: string): boolean =>
  quotesSecret(secretTraces([SECRET.slice(0, 12)]), Buffer.from(text))

const note = (text: string): string =>
  `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"${text}"}}`
const responding = (told: Told, member: string): string =>
  `{"jsonrpc":"2.0","id":${String(told.id)},${member}}`
const saying = (text: string): string => `"result":{"content":[{"type":"text","text":"${text}"}]}`

/** The doors by which what an MCP server says goes on to a caller. */
const MCP_DOORS: Readonly<Record<string, (told: Told, spelled: string) => string>> = {
  'a result': (told, spelled) => responding(told, saying(spelled)),
  'a name in a result': (told, spelled) =>
    responding(told, `"result":{"content":[],"_meta":{"${spelled}":1}}`),
  'a large result': (told, spelled) =>
    responding(told, saying(`${'\\n lorem ipsum'.repeat(9000)}${spelled}`)),
  'an error': (told, spelled) => responding(told, `"error":{"code":-1,"message":"${spelled}"}`),
  'data of an error': (told, spelled) =>
    responding(told, `"error":{"code":-1,"message":"no","data":{"headers":["${spelled}"]}}`),
}

/** The doors by which what a provider says goes on to a caller. */
const LLM_DOORS: Readonly<Record<string, (spelled: string) => Answer>> = {
  'a short answer': (spelled) => (res) => {
    res.setHeader('content-type', 'application/json').end(`{"choices":[{"text":"${spelled}"}]}`)
  },
  'a long answer': (spelled) => (res) => {
    res.setHeader('content-type', 'application/json').end(`{"a":"${'lorem '.repeat(9000)}","b":"${spelled}"}`)
  },
  'an event': (spelled) => (res) => {
    res.setHeader('content-type', 'text/event-stream').write('data: {"choices":[]}\n\n')
    res.end(`data: {"choices":[{"delta":{"${spelled}":"x"}}]}\n\ndata: [DONE]\n\n`)
  },
  'an event in two writes': (spelled) => async (res) => {
    const half = Math.floor((spelled.length * 2) / 3)
    res.setHeader('content-type', 'text/event-stream')
    await new Promise((resolve) => res.write(`data: {"a":"${spelled.slice(0, half)}`, resolve))
    await new Promise((resolve) => setImmediate(resolve))
    res.end(`${spelled.slice(half)}"}\n\ndata: [DONE]\n\n`)
  },
  'a compressed answer': (spelled) => (res) => {
    res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' })
    res.end(gzipSync(`{"choices":[{"text":"${spelled}"}]}`))
  },
  'a compressed refusal': (spelled) => (res) => {
    res.writeHead(404, { 'content-type': 'application/json', 'content-encoding': 'br' })
    res.end(brotliCompressSync(`{"error":{"message":"${spelled}"}}`))
  },
  'compressed events without a label': (spelled) => (res) => {
    res.setHeader('content-type', 'text/event-stream').write(gzipSync(`data: {"a":"${spelled}"}\n\n`))
    res.end(gzipSync('data: [DONE]\n\n'))
  },
  'a refusal in UTF-16': (spelled) => (res) => {
    res.writeHead(400, { 'content-type': 'application/json; charset=utf-16' })
    res.end(Buffer.from(`{"error":{"message":"${spelled}"}}`, 'utf16le'))
  },
  'its own refusal': (spelled) => (res) => {
    res.writeHead(400, { 'content-type': 'application/json' }).end(`{"error":{"message":"${spelled}"}}`)
  },
  'a long refusal': (spelled) => (res) => {
    res.writeHead(400, { 'content-type': 'application/json' })
    res.end(`{"error":{"message":"${'\\n'.repeat(100_000)}${spelled}"}}`)
  },
  'a failure in its words': (spelled) => (res) => {
    res.writeHead(500, { 'content-type': 'application/json' }).end(`{"error":{"message":"${spelled}"}}`)
  },
  'a header': (spelled) => (res) => {
    res.setHeader('openai-version', spelled).setHeader('x-request-id', spelled)
    res.setHeader('content-type', 'application/json').end('{"choices":[]}')
  },
}

for (const [writer, spell] of WRITTEN) {
  await t.test(
    `H1a an MCP server that echoes its headers as ${writer} does not give its token away`,
    async (t) => {
      for (const [door, write] of Object.entries(MCP_DOORS)) {
        server.act = legacyWith(TOOLS, (res, told) => {
          sendJson(res, write(told, spell(String(told.headers.authorization))))
        })
        const { text, json } = await stage.callTool(bot, 'up.go')
        t.notOk(givesAway(text), door)
        t.equal(json.error?.code, -32003, door)
      }
      server.act = legacyWith(TOOLS, (res, told) => {
        const send = sse(res)
        send(note('honest'))
        send(note(spell(String(told.headers.authorization))))
        send(result(told))
        res.end()
      })
      const { text } = await stage.callTool(bot, 'up.go', {}, { headers: { accept: 'text/event-stream' } })
      t.match(text, 'honest', 'what came before is passed on')
      t.notOk(givesAway(text), 'a notification')
      server.act = legacyWith(TOOLS, (res, told) => {
        sendJson(res, error(told.id, -1, spell(SECRET)), 400)
      })
      t.notOk(givesAway((await stage.callTool(bot, 'up.go')).text), 'an error with an HTTP status')
    },
  )
}

await t.test(
  'H1a a secret that is broken into lines is found in a result, an error and a refusal',
  async (t) => {
    for (const [writer, spell] of Object.entries(BROKEN_SPELLINGS)) {
      for (const door of ['a result', 'a large result', 'data of an error']) {
        server.act = legacyWith(TOOLS, (res, told) => {
          sendJson(res, MCP_DOORS[door]?.(told, spell(SECRET)) ?? '')
        })
        t.equal((await stage.callTool(bot, 'up.go')).json.error?.code, -32003, `${writer} in ${door}`)
      }
      for (const door of ['its own refusal', 'a long refusal', 'a failure in its words']) {
        stage.upstream.answer = LLM_DOORS[door]?.(spell(SECRET)) ?? (() => void t.fail(door))
        const { text } = await stage.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
        t.match(text, '"reason":"provider_', `${writer} in ${door}`)
      }
    }
  },
)

await t.test('H1a a key in the query of a server’s endpoint is looked for as well', async (t) => {
  const key = 'key-in-a-query-0123456789'
  const keyed = await toolServer(t, TOOLS)
  const endpoint_url = `${keyed.url}?api_key=${key}&workspace=acme-workspace-17`
  const other = await stage.register('keyed', keyed, { endpoint_url })
  await stage.bind(bot, other)
  keyed.act = legacyWith(TOOLS, (res, told) => sendJson(res, responding(told, saying(`no ${key}`))))
  t.equal((await stage.callTool(bot, 'keyed.go')).json.error?.code, -32003)
  keyed.act = legacyWith(TOOLS, (res, told) =>
    sendJson(res, responding(told, saying('of acme-workspace-17'))),
  )
  t.match((await stage.callTool(bot, 'keyed.go')).text, 'of acme-workspace-17', 'and nothing else of it is')
})

await t.test('H1a an honest answer full of escapes is passed on byte for byte', async (t) => {
  const said = JSON.stringify({
    content: [{ type: 'text', text: `{"a":"\\u003d &amp; 100%25 \n ${SECRET.slice(2)}"}` }],
  })
  server.act = legacyWith(TOOLS, (res, told) => sendJson(res, responding(told, `"result":${said}`)))
  t.match((await stage.callTool(bot, 'up.go')).text, `"result":${said}`)
})

for (const [writer, spell] of WRITTEN) {
  await t.test(`H1a a provider that echoes its key as ${writer} does not give it away`, async (t) => {
    for (const [door, write] of Object.entries(LLM_DOORS)) {
      stage.upstream.answer = write(spell(SECRET))
      const answer = await stage
        .call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
        .catch((broken: unknown) => ({ text: String(broken), headers: {} }))
      t.notOk(givesAway(`${answer.text} ${JSON.stringify(answer.headers)}`), door)
      t.notMatch(answer.text, '[DONE]', `${door} does not end as a whole one`)
    }
  })
}

await t.test(
  'H1a the decoded login of an operator’s header counts as a secret, and the model’s words do not',
  async (t) => {
    stage.upstream.answer = (res) => {
      res.setHeader('content-type', 'application/json').end('{"a":"you are tenant:its-password-here"}')
    }
    t.equal((await stage.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 502)
    stage.upstream.answer = (res) => {
      res
        .setHeader('content-type', 'application/json')
        .end('{"a":"see https://intranet.acme.example/assistant"}')
    }
    const about = await stage.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal(about.status, 200, 'a header that is no credential may be talked about')
    stage.upstream.answer = (res) => {
      res.setHeader('content-type', 'text/event-stream')
      res.write('data: {"a":"token/a+b=c\\u003d\\n tenant: \\\\u00')
      setImmediate(() => res.end('"}\n\ndata: [DONE]\n\n'))
    }
    const { text } = await stage.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal(text, 'data: {"a":"token/a+b=c\\u003d\\n tenant: \\\\u00"}\n\ndata: [DONE]\n\n')
  },
)

await t.test('H1a neither rows nor log hold what was kept back', async (t) => {
  await settledCalls(stage)
  t.notOk(givesAway(JSON.stringify(await stage.rows({ limit: 1000 }))))
  t.notOk(givesAway(JSON.stringify(stage.log)))
})
