import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const REQUEST = {
  model: 'gpt-5',
  input: 'hi',
  store: false,
  max_output_tokens: 100,
  user: 'u',
  tools: [{ type: 'web_search' }],
}

await t.test(
  'docs/translation.md the verb prints what would be sent, and names what would not',
  async (t) => {
    const file = join(t.testdir(), 'request.json')
    writeFileSync(file, JSON.stringify(REQUEST))
    const run = (...args: readonly string[]) => sallyport(['translate', file, ...args])

    t.match(await run('--to', 'messages'), { code: 1, err: /refused: tools\[0\] \(hosted_tools\)/ })
    const told = await run('--to', 'messages', '--lossy', 'hosted_tools', '--model', 'claude-opus-5')
    t.match(told, { code: 0, err: /left out: hosted_tools, user/ })
    t.match(JSON.parse(told.out), { model: 'claude-opus-5', max_tokens: 100, messages: [{ role: 'user' }] })
    t.match(await run('--to', 'responses'), { code: 1, err: /is of responses already/ })
    t.match(await run('--to', 'smoke'), { code: 1, err: /--to must be one of chat, responses, messages/ })
    t.match(await run('--to', 'messages', '--lossy', 'everything'), { code: 1 })
  },
)
