import type { McpServer, ServerContext } from '@modelcontextprotocol/server'
import { z } from 'zod'
import { said } from './fixture-content.ts'

/** The tools that send a request of their own to the client while they work (2025-11-25 and earlier). */
export function addAsks(server: McpServer): void {
  server.registerTool(
    'test_sampling',
    { description: "Asks the client's model", inputSchema: z.object({ prompt: z.string() }) },
    async ({ prompt }, ctx) => {
      const messages = [{ role: 'user' as const, content: { type: 'text' as const, text: prompt } }]
      const { content } = await ctx.mcpReq.requestSampling({ messages, maxTokens: 100 }, within(ctx))
      return said(`LLM response: ${JSON.stringify(content)}`)
    },
  )
  const user = { username: { type: 'string' }, email: { type: 'string' } } as const
  server.registerTool(
    'test_elicitation',
    { description: 'Asks the user', inputSchema: z.object({ message: z.string() }) },
    async ({ message }, ctx) => {
      const requestedSchema = { type: 'object' as const, properties: user, required: ['username', 'email'] }
      const answer = await ctx.mcpReq.elicitInput({ message, requestedSchema }, within(ctx))
      return said(`User response: ${JSON.stringify(answer)}`)
    },
  )
  addForm(server, 'test_elicitation_sep1034_defaults', DEFAULTS)
  addForm(server, 'test_elicitation_sep1330_enums', CHOICES)
}

/** On the stream of the call itself: the client's other stream, by GET, need not be open yet. */
const within = (ctx: ServerContext) => ({ relatedRequestId: ctx.mcpReq.id })

function addForm(server: McpServer, name: string, properties: typeof DEFAULTS | typeof CHOICES): void {
  server.registerTool(name, { description: 'Shows the user a form' }, async (ctx) => {
    const requestedSchema = { type: 'object' as const, properties }
    const answer = await ctx.mcpReq.elicitInput(
      { message: 'Please fill this in.', requestedSchema },
      within(ctx),
    )
    return said(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content)}`)
  })
}

/** A default for every primitive type (SEP-1034). */
const DEFAULTS = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
} as const

const titled = [
  { const: 'value1', title: 'First' },
  { const: 'value2', title: 'Second' },
  { const: 'value3', title: 'Third' },
]
const options = ['option1', 'option2', 'option3']

/** Every way of offering a choice (SEP-1330). */
const CHOICES = {
  untitledSingle: { type: 'string', enum: options },
  titledSingle: { type: 'string', oneOf: titled },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['One', 'Two', 'Three'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
  titledMulti: { type: 'array', items: { anyOf: titled } },
} as const
