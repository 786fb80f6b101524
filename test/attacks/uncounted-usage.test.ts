import t from 'tap'
import { answerTap } from '../../proxy/llm/dialects/answer-tap.ts'
import { anthropic } from '../../proxy/llm/dialects/anthropic.ts'
import type { Dialect } from '../../proxy/llm/dialects/dialect.ts'
import { openai } from '../../proxy/llm/dialects/openai.ts'
import type { ProviderUsage } from '../../proxy/llm/dialects/stated-usage.ts'

const MIB = 1024 * 1024
const SSE = 'text/event-stream'

function read(dialect: Dialect, type: string, answer: string, size: number): ProviderUsage {
  const tap = answerTap(dialect, type)
  const bytes = Buffer.from(answer)
  for (let at = 0; at < bytes.length; at += size) tap.observe(bytes.subarray(at, at + size))
  return tap.usage()
}

/**
 * Members that a caller sends so that they come back in the answer, as tools, instructions and metadata do.
 */
const ECHOED: Readonly<Record<string, unknown>> = {
  'nothing yet, in the schema of a tool': { tools: [{ parameters: { usage: null } }] },
  'nothing yet, written with a blank': { tools: [{ parameters: { usage: [null], x: '"usage":null' } }] },
  'another usage': { metadata: { usage: { input_tokens: 0, output_tokens: 0, prompt_tokens: 0 } } },
  'a usage that is a text': { metadata: { usage: 'none', model: 'gpt-cheap' } },
  'a member that holds one': { tools: [{ response: { usage: null, model: 'x' }, message: { usage: null } }] },
  'brackets and quotes': { instructions: '"}]}{"usage":null}\\', tools: [[[['"usage"', { a: '}' }]]]] },
  'a mebibyte more than is kept': { instructions: `"usage":null${'\\n"'.repeat(MIB)}`, x: { usage: null } },
  'a great many objects': { tools: Array.from({ length: 40_000 }, () => ({ usage: null })) },
}

const TOKENS = { input_tokens: 7, output_tokens: 9 }
const event = (value: unknown): string => `event: x\ndata: ${JSON.stringify(value)}\n\n`

for (const [what, echoed] of Object.entries(ECHOED)) {
  await t.test(`H1f usage is counted beside an echo of ${what}`, (t) => {
    const counted = { tokens: { input: 7, output: 9 }, upstream_model: 'gpt-dear' }
    const before = { ...(echoed as object), model: 'gpt-dear', usage: TOKENS }
    const behind = { model: 'gpt-dear', usage: TOKENS, ...(echoed as object) }
    for (const stated of [before, behind]) {
      const created = { type: 'response.created', response: { ...stated, usage: null } }
      const responses = event(created) + event({ type: 'response.completed', response: stated })
      const { tokens: _, ...start } = { tokens: null, ...stated }
      const messages =
        event({ type: 'message_start', message: start }) +
        event({ type: 'message_delta', usage: { output_tokens: 9 }, echoed })
      const chat = event({ ...stated, usage: null }) + event(stated)
      for (const size of responses.length > MIB ? [MIB * 16, 65_536] : [MIB, 1_000, 70]) {
        t.strictSame(read(openai, SSE, responses, size), counted, `responses by ${size}`)
        t.strictSame(read(openai, SSE, chat, size), counted, `chat by ${size}`)
        t.strictSame(read(anthropic, SSE, messages, size), counted, `messages by ${size}`)
        t.strictSame(
          read(openai, 'application/json', JSON.stringify(stated), size),
          counted,
          `JSON by ${size}`,
        )
        t.strictSame(read(anthropic, 'application/json', JSON.stringify(stated), size), counted)
      }
    }
    t.end()
  })
}

await t.test('H1f a stream that states no usage still says which model answers', (t) => {
  const chunks = event({ model: 'gpt-dear', choices: [] }) + event({ choices: [] })
  t.strictSame(read(openai, SSE, chunks, 1_000), { upstream_model: 'gpt-dear' })
  t.strictSame(read(anthropic, SSE, event({ message: { model: 'claude-x' } }), 1_000), {
    upstream_model: 'claude-x',
  })
  t.end()
})

await t.test('H1f what is looked through as it passes holds nobody up', (t) => {
  for (const unit of ['[],', '"",', '{"usage":null},', '\\"', '"\\\\",', '1,', '{"a":']) {
    const tap = answerTap(openai, 'application/json')
    tap.observe(Buffer.from('{"a":['))
    const chunk = Buffer.alloc(65_536, unit)
    let worst = 0
    for (let made = 0; made < 64; made += 1) {
      const before = process.threadCpuUsage()
      tap.observe(chunk)
      const { user, system } = process.threadCpuUsage(before)
      worst = Math.max(worst, user + system)
    }
    t.ok(worst < 20_000, `${unit}: ${worst / 1000} ms of processor time for a chunk`)
  }
  t.end()
})
