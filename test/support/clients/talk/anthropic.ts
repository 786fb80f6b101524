import Anthropic from '@anthropic-ai/sdk'
import type { Talk } from './talk.ts'

/** The Anthropic SDK: messages. */
export const talk: Talk = async (url, fetch) => {
  const client = new Anthropic({ baseURL: url, apiKey: 'unused', ...(fetch && { fetch }) })
  const asked = {
    model: 'claude-test',
    max_tokens: 64,
    messages: [{ role: 'user' as const, content: 'hi' }],
  }
  const { content } = await client.messages.create(asked)
  const text = content.map((block) => (block.type === 'text' ? block.text : '')).join('')
  const pieces: string[] = []
  for await (const event of await client.messages.create({ ...asked, stream: true })) {
    if (event.type === 'content_block_delta' && event.delta.type === 'text_delta')
      pieces.push(event.delta.text)
  }
  return [{ api: 'messages', text, pieces }]
}
