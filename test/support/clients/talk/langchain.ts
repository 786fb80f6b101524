import { ChatOpenAI } from '@langchain/openai'
import type { Talk, Talked } from './talk.ts'

/** LangChain's OpenAI model, by both of that vendor's APIs. */
export const talk: Talk = async (url, fetch) => {
  const configuration = { baseURL: `${url}/v1`, ...(fetch && { fetch }) }
  const fields = { model: 'gpt-test', apiKey: 'unused', configuration }
  return [
    await ask('chat', new ChatOpenAI(fields)),
    await ask('responses', new ChatOpenAI({ ...fields, useResponsesApi: true })),
  ]
}

async function ask(api: string, model: ChatOpenAI): Promise<Talked> {
  const { text } = await model.invoke('hi')
  const pieces: string[] = []
  for await (const chunk of await model.stream('hi')) pieces.push(chunk.text)
  return { api, text, pieces }
}
