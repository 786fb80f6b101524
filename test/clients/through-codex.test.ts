import t from 'tap'
import { type Home, homeOf, installed, linesOf, sectionOf } from '../support/clients/alone.ts'
import type { Ran } from '../support/clients/files.ts'
import { callsOf, SAID } from '../support/clients/sdk.ts'
import { DENIED, through, times } from '../support/clients/through.ts'
import { begin, callBlock, finish, textBlock, thinkingBlock } from '../support/llm/translate.ts'

const ENTRY = 'bin/codex.js'

/** Codex, asked once. */
const ask = (entry: string, home: Home, ...args: readonly string[]): Promise<Ran> =>
  home.run(entry, ['exec', '--skip-git-repo-check', '--model', 'gpt-test', ...args, 'say hi'])

for (const [version, { entry, skip }] of [
  ['Codex', installed('@openai/codex', ENTRY)],
  ['Codex 0.121, which sends a header with an underscore,', installed('codex-0.121', ENTRY)],
] as const)
  await t.test(
    `§5.2 ${version} calls through the sidecar: an answer and a refusal, each call proven by DPoP`,
    { skip },
    async (t) => {
      const way = await through(t)
      const lines = linesOf(way)
      const home = await homeOf(t, lines)
      // For a shell they are comments.
      await home.put('.codex', 'config.toml', sectionOf(lines, 'Codex').replaceAll(/^# {3}/gm, ''))

      const answered = await ask(entry, home)
      t.match(answered, { code: 0, out: `${SAID}\n` }, 'it answers', { err: answered.err })
      t.match(
        callsOf(way.mock).at(-1),
        { path: '/v1/responses', body: { stream: true } },
        'which was a stream',
      )

      const { code, out } = await ask(entry, home, '--json')
      t.equal(code, 0)
      t.match(
        out,
        /"type":"turn\.completed","usage":\{"input_tokens":7,.*"output_tokens":9[,}]/,
        'to its end',
      )

      await way.deny()
      // It repeats what was refused as often as it is told to, whatever the answer advises.
      const retries = 1
      const denied = await ask(entry, home, '-c', `model_providers.sallyport.stream_max_retries=${retries}`)
      t.equal(denied.code, 1)
      t.ok(denied.err.includes(`403 Forbidden: ${DENIED}`), 'it shows why it was denied')
      t.same(await way.proven(), [...times(2, 'allowed'), ...times(1 + retries, 'denied')])
    },
  )

const { entry: current, skip } = installed('@openai/codex', ENTRY)

interface SentBlock {
  readonly type: string
  readonly tool_use_id?: string
  readonly signature?: string
}

await t.test(
  '§4 Codex works on a model of the Messages API: three turns of tools, two calls at once, reasoning that comes back',
  { skip },
  async (t) => {
    const provider =
      '{name: claude, dialect: anthropic, base_url: UPSTREAM/v1, api_key: sk-only-there, models: ["*"], lossy: [grammar]}'
    const way = await through(t, { '50-llm.yaml': `plugin: llm\nproviders:\n  - ${provider}\n` })
    const sent: (readonly SentBlock[])[] = []
    way.gateway.upstream.answer = (res, { url, body }) => {
      const { messages } = JSON.parse(body.toString())
      const blocks: readonly SentBlock[] = messages.flatMap(
        ({ content }: { content: readonly SentBlock[] }) => content,
      )
      sent.push(blocks)
      const shell = (index: number, id: string) =>
        callBlock(index, id, 'exec_command', JSON.stringify({ cmd: `echo said by ${id}` }))
      const turns = [
        thinkingBlock(0, 'hm', 'SIG-0') + textBlock(1, 'I look.') + shell(2, 'toolu_0'),
        shell(0, 'toolu_1') + shell(1, 'toolu_2'),
        shell(0, 'toolu_3'),
      ]
      const answers = blocks.filter(({ type }) => type === 'tool_result').length
      const turn = turns[[0, 1, 1, 2][answers] ?? 3]
      res.statusCode = url === '/v1/messages' ? 200 : 404
      res.setHeader('content-type', 'text/event-stream')
      res.end(
        begin({ input_tokens: 7 }) +
          (turn ?? textBlock(0, 'All done.')) +
          finish(turn ? 'tool_use' : 'end_turn'),
      )
    }
    const lines = linesOf(way)
    const home = await homeOf(t, lines)
    await home.put('.codex', 'config.toml', sectionOf(lines, 'Codex').replaceAll(/^# {3}/gm, ''))
    const own = ['web_search="disabled"', 'model_reasoning_effort="high"']
    const ran = await ask(current, home, ...own.flatMap((setting) => ['-c', setting]))
    t.match(ran, { code: 0, out: 'All done.\n' }, 'it ends its work', { err: ran.err })

    t.equal(sent.length, 4, 'in four calls')
    const last = sent.at(-1) ?? []
    const results = last.filter(({ type }) => type === 'tool_result')
    t.same(
      results.map(({ tool_use_id: id }) => id),
      ['toolu_0', 'toolu_1', 'toolu_2', 'toolu_3'],
    )
    for (const [index, result] of results.entries())
      t.match(JSON.stringify(result), new RegExp(`said by toolu_${index}`))
    t.match(
      last.filter(({ type }) => type === 'thinking'),
      [{ thinking: 'hm', signature: 'SIG-0' }],
    )
  },
)
