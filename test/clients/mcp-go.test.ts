import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type Json, scratch } from '../support/gateway.ts'
import { built } from '../support/go/built.ts'
import { conversation } from '../support/go/conversation.ts'
import { startFixture } from '../support/mcp/fixture.ts'
import { mcpStage } from '../support/mcp/stage.ts'

// A program is compiled first, on a machine that may be busy.
t.setTimeout(300_000)
const { program, missing } = await built('mcpclient')

/** The servers by the eras that they speak, and the tool of each that asks its caller, by the caller's era. */
const SERVERS = {
  legacy: { modern: 'test_elicitation', legacy: 'test_elicitation' },
  both: { modern: 'test_input_required_result_elicitation', legacy: 'test_elicitation' },
  modern: {
    modern: 'test_input_required_result_elicitation',
    legacy: 'test_input_required_result_elicitation',
  },
} as const
const NAMES = ['legacy', 'both', 'modern'] as const

await t.test(
  'a client on the SDK of Go connects at every door, with a handler for all changes, and what it is offered works',
  { skip: missing },
  async (t) => {
    const stage = await mcpStage(t)
    const held = ['mcp.tools.list', 'mcp.prompts.get', 'mcp.resources.read', 'use']
    const bot = await stage.enroll('bot', held)
    for (const eras of NAMES) {
      const server = await startFixture(t, { eras })
      await stage.bind(bot, await stage.register(eras, server, { required_capability: 'use' }))
    }
    const directory = await scratch(t)
    const files = { 'ca.crt': stage.ca, 'agent.crt': bot.cert, 'agent.key': bot.key }
    for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)

    for (const [era, version, asked] of [
      ['modern', '2026-07-28', ''],
      ['legacy', '2025-11-25', '2025-11-25'],
    ] as const) {
      for (const door of ['', ...NAMES] as const) {
        const at = `${era} at ${door || 'the common door'}`
        const url = `${stage.url}/v1/mcp${door && `/${door}`}`
        const { first, ask } = await conversation(t, program, [url, directory, asked])
        const logs = door === era || door === 'both'
        const offered = {
          tools: {},
          prompts: {},
          resources: {},
          completions: {},
          ...(logs && { logging: {} }),
        }
        t.same(first, { version, capabilities: offered }, `${at} is offered what works there, and no more`)
        const names = async (what: string) =>
          (await ask({ do: what })).result[what].map(({ name }: Json) => name as string)
        const listed = await names('tools')
        t.ok((await names('prompts')).length > 0 && (await names('resources')).length > 0, at)
        const completed = await ask({ do: 'complete', name: door === '' ? 'both.any' : 'any' })
        t.match(completed.result, { completion: { values: ['paris', 'park', 'party'] } }, at)
        if (first.capabilities.logging && era === 'legacy') t.notOk((await ask({ do: 'level' })).error, at)
        for (const server of door === '' ? NAMES : [door]) {
          const tool = SERVERS[server][era]
          const name = door === '' ? `${server}.${tool}` : tool
          t.ok(listed.includes(name), `${at} lists ${name}`)
          const filled = await ask({ do: 'call', name, arguments: { message: 'Your name?' } })
          t.match(filled.result, { content: [{ text: /Ada/ }] }, `${at} is asked by ${name}`)
        }
      }
    }
  },
)
