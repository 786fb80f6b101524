import {
  type AudioContent,
  acceptedContent,
  type CallToolResult,
  type ImageContent,
  type InputRequest,
  inputRequired,
  type McpServer,
  type PromptMessage,
  ResourceTemplate,
  type TextContent,
} from '@modelcontextprotocol/server'
import { z } from 'zod'

/** A picture of one pixel. */
export const TINY_IMAGE: ImageContent = {
  type: 'image',
  mimeType: 'image/png',
  data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=',
}

/** A sound of no samples: the header of a WAV file alone. */
export const AUDIO: AudioContent = {
  type: 'audio',
  mimeType: 'audio/wav',
  data: Buffer.from(
    'RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0',
    'latin1',
  ).toString('base64'),
}

/** A tool's answer of one line. */
export const said = (text: string): CallToolResult & { content: [TextContent] } => ({
  content: [{ type: 'text', text }],
})

/** A question of one field to a person, as `elicitation/create` asks it. */
export const question = (
  message: string,
  field: string,
  type: 'string' | 'boolean' = 'string',
): InputRequest => {
  const properties = { [field]: type === 'string' ? { type } : { type } }
  return inputRequired.elicit({ message, requestedSchema: { type: 'object', properties, required: [field] } })
}

/** The resources, of which `test://watched-resource` may be subscribed to, and the one template. */
export function addResources(server: McpServer): void {
  const text = { description: 'A text that never changes', mimeType: 'text/plain' }
  const binary = { description: 'A picture that never changes', mimeType: 'image/png' }
  const watched = { description: 'A text one may subscribe to', mimeType: 'text/plain' }
  const template = { description: 'A text with its id in it', mimeType: 'application/json' }
  server.registerResource('static-text', 'test://static-text', text, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'text/plain', text: 'A text that never changes.' }],
  }))
  server.registerResource('static-binary', 'test://static-binary', binary, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'image/png', blob: TINY_IMAGE.data }],
  }))
  server.registerResource('watched-resource', 'test://watched-resource', watched, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'text/plain', text: 'Nothing new.' }],
  }))
  const place = new ResourceTemplate('test://template/{id}/data', { list: undefined })
  server.registerResource('template', place, template, ({ href: uri }, { id }) => ({
    contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id }) }],
  }))
}

const asked = (content: PromptMessage['content']): PromptMessage => ({ role: 'user', content })
const words = (text: string): PromptMessage => asked({ type: 'text', text })

/** The prompts; the last of them asks the client first. */
export function addPrompts(server: McpServer): void {
  server.registerPrompt('test_simple_prompt', { description: 'Has no arguments' }, () => ({
    messages: [words('Say something simple.')],
  }))
  const two = z.object({ arg1: z.string(), arg2: z.string() })
  server.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'Has two arguments', argsSchema: two },
    ({ arg1, arg2 }) => ({ messages: [words(`First ${arg1}, then ${arg2}.`)] }),
  )
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'Carries a resource', argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri: uri }) => {
      const resource = { uri, mimeType: 'text/plain', text: 'Carried inside a prompt.' }
      return { messages: [asked({ type: 'resource', resource }), words('Read what is above.')] }
    },
  )
  server.registerPrompt('test_prompt_with_image', { description: 'Carries a picture' }, () => ({
    messages: [asked(TINY_IMAGE), words('Look at what is above.')],
  }))
  server.registerPrompt('test_input_required_result_prompt', { description: 'Asks first' }, (ctx) => {
    const answer = acceptedContent<{ context: string }>(ctx.mcpReq.inputResponses, 'user_context')
    if (answer) return { messages: [words(`In the context of ${answer.context}.`)] }
    const user_context = question('In which context?', 'context')
    return inputRequired({ inputRequests: { user_context } })
  })
}
