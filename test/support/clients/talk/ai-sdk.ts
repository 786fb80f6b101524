import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, type LanguageModel, streamText } from 'ai'
import type { Talk, Talked } from './talk.ts'

/**
 * The AI SDK: its OpenAI provider by both of that vendor's APIs, and its Anthropic provider. All base URLs
 * end with /v1.
 */
export const talk: Talk = async (url, fetch) => {
  const settings = { baseURL: `${url}/v1`, apiKey: 'unused', ...(fetch && { fetch }) }
  const openai = createOpenAI(settings)
  const anthropic = createAnthropic(settings)
  return [
    await ask('responses', openai('gpt-test')),
    await ask('chat', openai.chat('gpt-test')),
    await ask('messages', anthropic('claude-test')),
  ]
}

async function ask(api: string, model: LanguageModel): Promise<Talked> {
  const { text } = await generateText({ model, prompt: 'hi' })
  const pieces: string[] = []
  for await (const piece of streamText({ model, prompt: 'hi' }).textStream) pieces.push(piece)
  return { api, text, pieces }
}
