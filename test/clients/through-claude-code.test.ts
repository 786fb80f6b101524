import t from 'tap'
import { isObject } from '../../db/support/json.ts'
import { type Home, homeOf, installed, linesOf, sectionOf } from '../support/clients/alone.ts'
import type { Ran } from '../support/clients/files.ts'
import { callsOf, SAID } from '../support/clients/sdk.ts'
import { DENIED, through, UNPROVEN } from '../support/clients/through.ts'

// The launcher for those who run no install scripts.
const { entry, skip } = installed('@anthropic-ai/claude-code', 'cli-wrapper.cjs')

/** Claude Code, asked once, with nothing but what the gateway needs of the network. */
const claude = (home: Home, ...args: readonly string[]): Promise<Ran> =>
  home.run(
    entry,
    ['-p', 'say hi', '--model', 'claude-test', ...args],
    ['CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1'],
  )

await t.test(
  '§5.2 Claude Code through the sidecar: an answer, a stream and a refusal, each call proven by DPoP',
  { skip },
  async (t) => {
    const way = await through(t)
    const home = await homeOf(t, linesOf(way))
    const answered = await claude(home)
    t.match(answered, { code: 0, out: `${SAID}\n` }, 'it answers', { err: answered.err })

    const events = ['--output-format', 'stream-json', '--verbose', '--include-partial-messages']
    const streamed = await claude(home, ...events)
    t.equal(streamed.code, 0, streamed.err)
    const pieces = [...streamed.out.matchAll(/"text_delta","text":("(?:[^"\\]|\\.)*")/g)]
    t.equal(pieces.map(([, text = '']) => JSON.parse(text)).join(''), SAID)
    t.ok(pieces.length > 5, 'piece by piece')

    await way.deny()
    const denied = await claude(home)
    t.match(denied, { code: 1, out: /^Failed to authenticate/ })
    t.ok(denied.out.includes(DENIED), 'it shows why it was denied')
    t.same(await way.proven(), ['allowed', 'allowed', 'denied'], 'and does not try again')
  },
)

await t.test(
  '§5.2 Claude Code with the certificate alone is refused where a proof is required, and says so',
  { skip },
  async (t) => {
    const way = await through(t)
    const home = await homeOf(t, sectionOf(linesOf(way, true), 'Claude Code with the certificate'))
    const refused = await claude(home)
    t.equal(refused.code, 1)
    t.ok(refused.out.includes(UNPROVEN), refused.out)
    t.same(await way.proven(), [])
    t.equal(callsOf(way.mock).length, 0, 'the provider heard nothing of it')
  },
)

/** The chunks of a Chat Completions stream. */
const chunks = (...deltas: readonly object[]): string =>
  deltas.map((delta) => `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta }] })}\n\n`).join('')

const ended = (reason: string): string =>
  `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: {}, finish_reason: reason }], usage: { prompt_tokens: 7, completion_tokens: 3 } })}\n\ndata: [DONE]\n\n`

await t.test(
  '§4 Claude Code works on a server of Chat Completions: turns of tools, two calls at once, one that fails',
  { skip },
  async (t) => {
    const provider =
      '{name: local, dialect: openai, speaks: [chat], server: vllm, base_url: UPSTREAM/v1, api_key: sk-only-there, models: ["*"]}'
    const way = await through(t, { '50-llm.yaml': `plugin: llm\nproviders:\n  - ${provider}\n` })
    const home = await homeOf(t, linesOf(way))
    await home.put('', 'a.txt', 'the first file')
    const sent: (readonly Record<string, unknown>[])[] = []
    way.gateway.upstream.answer = (res, { url, body }) => {
      const { messages, tools } = JSON.parse(body.toString())
      sent.push(messages)
      const read = (index: number, id: string, path: string) => ({
        tool_calls: [
          {
            index,
            id,
            type: 'function',
            function: { name: 'Read', arguments: JSON.stringify({ file_path: path }) },
          },
        ],
      })
      const answers = messages.filter(({ role }: { role: string }) => role === 'tool').length
      const turns = [
        chunks({ role: 'assistant', content: '' }, { content: 'I look.' }, read(0, 'call_0', 'a.txt')),
        chunks({ role: 'assistant' }, read(0, 'call_1', 'a.txt'), read(1, 'call_2', '/no/such/file')),
      ]
      // Its other calls, for a title for example, have no tools.
      const turn = tools ? turns[answers] : undefined
      res.statusCode = url === '/v1/chat/completions' ? 200 : 404
      res.setHeader('content-type', 'text/event-stream')
      res.end(
        turn
          ? turn + ended('tool_calls')
          : chunks({ role: 'assistant' }, { content: 'All done.' }) + ended('stop'),
      )
    }
    const ran = await claude(home, '--allowedTools', 'Read')
    t.match(ran, { code: 0, out: 'All done.\n' }, 'it ends its work', { err: ran.err })
    const results = (sent.findLast((messages) => messages.some(({ role }) => role === 'tool')) ?? []).filter(
      isObject,
    )
    t.match(
      results.filter(({ role }) => role === 'tool').map(({ tool_call_id: id, content }) => [id, content]),
      [
        ['call_0', /the first file/],
        ['call_1', /first file|unchanged/],
        ['call_2', /^\[error\]\n/],
      ],
    )
  },
)
