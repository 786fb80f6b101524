import OpenAI from 'openai'
import type { Talk, Talked } from './talk.ts'

/** The OpenAI SDK: chat completions and responses. */
export const talk: Talk = async (url, fetch) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', ...(fetch && { fetch }) })
  return [await chat(client), await responses(client)]
}

async function chat(client: OpenAI): Promise<Talked> {
  const asked = { model: 'gpt-test', messages: [{ role: 'user' as const, content: 'hi' }] }
  const { choices } = await client.chat.completions.create(asked)
  const pieces: string[] = []
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    pieces.push(chunk.choices[0]?.delta.content ?? '')
  }
  return { api: 'chat', text: choices[0]?.message.content ?? '', pieces }
}

async function responses(client: OpenAI): Promise<Talked> {
  const asked = { model: 'gpt-test', input: 'hi' }
  const { output_text: text } = await client.responses.create(asked)
  const pieces: string[] = []
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    if (event.type === 'response.output_text.delta') pieces.push(event.delta)
  }
  return { api: 'responses', text, pieces }
}
