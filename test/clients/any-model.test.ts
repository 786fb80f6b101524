import t, { type Test } from 'tap'
import type { ApiWire } from '../../proxy/llm/dialects/dialect.ts'
import { reachedModel } from '../../scripts/client/model-reach.ts'
import { shellExports } from '../../scripts/verbs/env.ts'
import { type Home, homeOf, installed } from '../support/clients/alone.ts'
import type { Ran } from '../support/clients/files.ts'
import { type Through, through } from '../support/clients/through.ts'
import {
  FINISHED,
  onlyProvider,
  type ScriptedTurn,
  scripted,
  type ToldTurn,
  type TurnPart,
} from '../support/clients/turns.ts'
import type { Answer } from '../support/upstream.ts'

/** A picture of one pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='

/** A client that works with tools, and its tools of that work. */
interface AgentClient {
  readonly title: string
  readonly skip: string | false
  /** Runs it once, as the lines of `sallyport env --model` say. */
  readonly ask: (home: Home) => Promise<Ran>
  readonly read: (id: string, file: string) => TurnPart
  readonly look: (id: string, file: string) => TurnPart
  /** The words by which it tells of a context that is full. */
  readonly full: RegExp
}

const MODEL = 'some-model'

const code = installed('@anthropic-ai/claude-code', 'cli-wrapper.cjs')
const CLAUDE_CODE: AgentClient = {
  title: 'Claude Code',
  skip: code.skip,
  ask: (home) =>
    home.run(
      code.entry,
      ['-p', 'say hi', '--model', MODEL, '--allowedTools', 'Read', '--disallowedTools', 'WebSearch'],
      ['CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1', 'CLAUDE_CODE_MAX_CONTEXT_TOKENS=200000'],
    ),
  read: (id, file) => ({ call: id, tool: 'Read', input: { file_path: file } }),
  look: (id, file) => ({ call: id, tool: 'Read', input: { file_path: file } }),
  full: /prompt is too long/i,
}

const SHELL: Readonly<Record<string, string>> = {
  'a.txt': 'echo the first file',
  'b.txt': 'echo the second file',
}
const codex = installed('@openai/codex', 'bin/codex.js')
const CODEX: AgentClient = {
  title: 'Codex',
  skip: codex.skip,
  ask: (home) => home.run(codex.entry, ['exec', '--skip-git-repo-check', 'say hi']),
  // Its sandbox shows no files of a scratch directory.
  read: (id, file) => ({ call: id, tool: 'exec_command', input: { cmd: `${SHELL[file] ?? 'cat'} ${file}` } }),
  look: (id, file) => ({ call: id, tool: 'view_image', input: { path: file } }),
  full: /context window|too long/i,
}

interface PlayedAgent {
  readonly way: Through
  readonly home: Home
  readonly told: ToldTurn[]
}

/** A client at home, set up as `sallyport env --model` says, and a provider of one API that plays a script. */
async function played(
  t: Test,
  wire: ApiWire,
  turns: readonly ScriptedTurn[],
  { model = MODEL, more = '' } = {},
): Promise<PlayedAgent> {
  const way = await through(t, onlyProvider(wire, model, more))
  const told: ToldTurn[] = []
  way.gateway.upstream.answer = scripted(wire, turns, told)
  const port = Number(new URL(way.sidecar).port)
  const reached = await reachedModel(model, { directory: null, gateway: undefined, port })
  const lines = shellExports({ port, identity: null, direct: false, reached })
  const home = await homeOf(t, `${lines}\nprintf %s ${PIXEL} | base64 -d > a.png`)
  const [, config = ''] = /^# Codex reaches .*\n([\s\S]*)$/m.exec(lines) ?? []
  await home.put('.codex', 'config.toml', config.replaceAll(/^# {3}/gm, ''))
  await home.put('', 'a.txt', 'the first file')
  await home.put('', 'b.txt', 'the second file')
  return { way, home, told }
}

const PAIRS = [
  [CLAUDE_CODE, 'responses'],
  [CLAUDE_CODE, 'chat'],
  [CODEX, 'messages'],
  [CODEX, 'chat'],
] as const

/** The way in which a provider is told what the model thought. */
const THOUGHT: Readonly<Record<ApiWire, RegExp>> = {
  messages: /"thinking":"hm","signature":"signed hm"/,
  responses: /"encrypted_content":"sealed hm"/,
  chat: /"reasoning_content":"hm"/,
}

for (const [client, wire] of PAIRS)
  await t.test(
    `§4 ${client.title} works on a model of ${wire}: tools, two at once, one that fails, a picture, what was thought`,
    { skip: client.skip },
    async (t) => {
      const turns: readonly ScriptedTurn[] = [
        { parts: [{ think: 'hm' }, { say: 'I look.' }, client.read('call_0', 'a.txt')] },
        { parts: [client.read('call_1', 'b.txt'), client.read('call_2', 'none.txt')] },
        { parts: [client.look('call_3', 'a.png')] },
      ]
      const { way, home, told } = await played(t, wire, turns)
      const ran = await client.ask(home)
      t.match(ran, { code: 0, out: new RegExp(`${FINISHED}\n$`) }, 'it ends its work', { err: ran.err })
      t.equal(told.length, 4, 'in four calls')
      const { results = [], body } = told.at(-1) ?? {}
      t.same(
        results.map(({ id }) => id),
        ['call_0', 'call_1', 'call_2', 'call_3'],
      )
      t.match(results[0]?.text, 'the first file')
      t.match(results[1]?.text, 'the second file')
      t.match(results[2]?.text, client === CLAUDE_CODE ? '[error]' : /No such file/)
      t.match(results[3]?.text, PIXEL.slice(0, 40), 'the picture')
      t.match(JSON.stringify(body), THOUGHT[wire], 'what was thought comes back')
      const sessions = new Set(told.map((turn) => turn.body.prompt_cache_key))
      t.match([...sessions], wire === 'responses' ? [/^[\w-]{43}$/] : [undefined], 'one name of its session')
      t.equal(sessions.size, 1)
      t.same(new Set(await way.proven()), new Set(['allowed']))
    },
  )

/** The words of a provider about a context that is full. */
const FULL: Readonly<Record<ApiWire, object>> = {
  messages: {
    type: 'error',
    error: { type: 'invalid_request_error', message: 'prompt is too long: 2 tokens > 1 maximum' },
  },
  responses: {
    error: { code: 'context_length_exceeded', message: 'Your input exceeds the context window.' },
  },
  chat: { error: { code: 400, message: "This model's maximum context length is 1 token." } },
}

const FULL_EVENT: Readonly<Record<ApiWire, object>> = {
  ...FULL,
  responses: { type: 'response.failed', response: { id: 'r', status: 'failed', ...FULL.responses } },
}

for (const [client, wire] of PAIRS)
  await t.test(
    `§4 ${client.title} on a model of ${wire} runs no call of a stream that is cut, asks again, and knows a full context`,
    { skip: client.skip },
    async (t) => {
      const call = client.read('call_0', 'a.txt')
      const { way, home, told } = await played(t, wire, [
        { parts: [{ say: 'I' }, call], isCut: true },
        { parts: [client.read('call_1', 'b.txt')] },
      ])
      const ran = await client.ask(home)
      t.match(ran, { code: 0, out: new RegExp(`${FINISHED}\n$`) }, 'it ends its work', { err: ran.err })
      t.same(
        told.map(({ results }) => results.map(({ id }) => id)),
        [[], [], ['call_1']],
      )
      const say = (inStream: boolean): Answer => {
        return (res, { body }) => {
          // Claude Code asks again without a stream where one fails.
          const isEvent = inStream && JSON.parse(body.toString()).stream === true
          res.statusCode = isEvent ? 200 : 400
          res.setHeader('content-type', isEvent ? 'text/event-stream' : 'application/json')
          res.end(isEvent ? `data: ${JSON.stringify(FULL_EVENT[wire])}\n\n` : JSON.stringify(FULL[wire]))
        }
      }
      for (const inStream of [false, true]) {
        way.gateway.upstream.answer = say(inStream)
        const full = await client.ask(home)
        t.match(full.out + full.err, client.full, inStream ? 'in a stream' : 'as a status')
      }
    },
  )

await t.test(
  '§4 Codex works by the one tool that it has for a model that it knows, whoever serves it by that name',
  { skip: CODEX.skip },
  async (t) => {
    const script = { input: 'text("said " + (1 + 1))' }
    const { home, told } = await played(
      t,
      'messages',
      [{ parts: [{ think: 'hm' }, { call: 'call_0', tool: 'functions__exec', input: script }] }],
      { model: 'gpt-5.6-sol', more: ', lossy: [grammar, verbosity]' },
    )
    const ran = await CODEX.ask(home)
    t.match(ran, { code: 0, out: new RegExp(`${FINISHED}\n$`) }, 'it ends its work', { err: ran.err })
    t.match(told.at(-1)?.results, [{ id: 'call_0', text: /said 2/ }])
    t.match(JSON.stringify(told.at(-1)?.body), THOUGHT.messages)
  },
)

for (const client of [CLAUDE_CODE, CODEX])
  await t.test(
    `docs/limits.md#refusals ${client.title} stops at once at a budget that is used up, and shows when it begins again`,
    { skip: client.skip },
    async (t) => {
      const { way, home, told } = await played(t, client === CODEX ? 'messages' : 'responses', [])
      const limit = { name: 'used-up', measure: 'calls', per: 'month', amount: 0 }
      t.equal((await way.gateway.admin('POST', '/v1/admin/limits', limit)).status, 201)
      const { out, err } = await client.ask(home)
      t.match(out + err, client === CODEX ? /usage limit/i : 'used-up is used up')
      t.comment(out + err)
      t.equal(told.length, 0, 'no provider is asked')
      const denied = (await way.gateway.rows()).filter(({ status }) => status === 'denied')
      t.equal(denied.length, 1, 'it asks once')
      t.match(denied[0]?.detail, { reason: 'limit_reached' })
    },
  )
