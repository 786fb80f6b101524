import { setImmediate } from 'node:timers/promises'
import { type CallToolResult, fromJsonSchema, type McpServer } from '@modelcontextprotocol/server'
import { z } from 'zod'
import { AUDIO, said, TINY_IMAGE } from './fixture-content.ts'

/** What a change trigger tells everyone who listens on a `subscriptions/listen` stream. */
export interface Changed {
  readonly toolsChanged: () => void
  readonly promptsChanged: () => void
}

/**
 * The tools that answer out of themselves. Their names and what they must answer are facts of the conformance
 * suite.
 */
export function addTools(server: McpServer, changed: Changed): void {
  addContents(server)
  addReports(server)
  addSchemas(server)
  addTriggers(server, changed)
}

/** A tool without arguments. */
const plain = (
  server: McpServer,
  name: string,
  description: string,
  answer: () => CallToolResult | Promise<CallToolResult>,
): void => {
  server.registerTool(name, { description }, answer)
}

function addContents(server: McpServer): void {
  const embedded = {
    uri: 'test://embedded-resource',
    mimeType: 'text/plain',
    text: 'Carried inside a tool result.',
  }
  const mixed = {
    uri: 'test://mixed-content-resource',
    mimeType: 'application/json',
    text: '{"test":"data","value":123}',
  }
  plain(server, 'test_simple_text', 'Answers with one line of text', () => said('One line of text.'))
  plain(server, 'test_image_content', 'Answers with a picture', () => ({ content: [TINY_IMAGE] }))
  plain(server, 'test_audio_content', 'Answers with a sound', () => ({ content: [AUDIO] }))
  plain(server, 'test_embedded_resource', 'Answers with a resource', () => ({
    content: [{ type: 'resource', resource: embedded }],
  }))
  plain(server, 'test_multiple_content_types', 'Answers with text, a picture and a resource', () => ({
    content: [...said('Three of a kind:').content, TINY_IMAGE, { type: 'resource', resource: mixed }],
  }))
  plain(server, 'test_error_handling', 'Always fails', () => {
    throw new Error('This tool fails, and means to.')
  })
}

function addReports(server: McpServer): void {
  const logs = ['Tool execution started', 'Tool processing data', 'Tool execution completed']
  for (const name of ['test_tool_with_logging', 'test_logging_tool']) {
    server.registerTool(name, { description: 'Logs three lines while it works' }, async (ctx) => {
      for (const line of logs) {
        await ctx.mcpReq.log('info', line)
        await setImmediate()
      }
      return said('Logged.')
    })
  }
  server.registerTool('test_tool_with_progress', { description: 'Says how far it has come' }, async (ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken
    for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
      const params = { progressToken: progressToken ?? 0, progress, total: 100 }
      await ctx.mcpReq.notify({ method: 'notifications/progress', params })
      // Each in a write of its own, so that the answer is a stream of events and not one piece.
      await setImmediate()
    }
    return said('All of it.')
  })
  // The answer goes to the event store: who reconnects with Last-Event-ID has it, however late.
  server.registerTool('test_reconnection', { description: 'Closes its stream before it answers' }, (ctx) => {
    ctx.http?.closeSSE?.()
    return said('Found again.')
  })
}

function addSchemas(server: McpServer): void {
  server.registerTool(
    'json_schema_2020_12_tool',
    { description: 'Has a schema of JSON Schema 2020-12', inputSchema: fromJsonSchema(CONTACT) },
    () => said('It fits.'),
  )
  server.registerTool(
    'test_x_mcp_header',
    { description: 'Has an argument that is repeated in a header', inputSchema: fromJsonSchema(REGION) },
    () => said('Both say the same.'),
  )
  server.registerTool(
    'test_sum',
    {
      description: 'Adds two numbers, and says so in structured content',
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      outputSchema: z.object({ sum: z.number() }),
    },
    ({ a, b }) => ({ ...said(`${a + b}`), structuredContent: { sum: a + b } }),
  )
}

function addTriggers(server: McpServer, { toolsChanged, promptsChanged }: Changed): void {
  plain(server, 'test_trigger_tool_change', 'Says that the list of tools has changed', () => {
    toolsChanged()
    return said('Said so.')
  })
  plain(server, 'test_trigger_prompt_change', 'Says that the list of prompts has changed', () => {
    promptsChanged()
    return said('Said so.')
  })
}

const CONTACT = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
}

const REGION = {
  type: 'object',
  properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, level: { type: 'integer' } },
}
