import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { Agent, fetch, type RequestInfo, type RequestInit } from 'undici'
import { messageOf } from '../../db/support/error-message.ts'
import type { DemoGateway, MockProvider } from './gateway.ts'

export interface DemoAgent {
  readonly id: string
  readonly name: string
  /** Presents the certificate. */
  readonly fetch: typeof globalThis.fetch
  readonly openai: OpenAI
  readonly anthropic: Anthropic
  readonly close: () => Promise<void>
}

/** The key that the SDKs are given: each demands one, and the gateway neither needs it nor passes it on. */
const NO_KEY = 'unused'

async function enrollDemoAgent(
  gateway: DemoGateway,
  name: string,
  capabilities: readonly string[],
): Promise<DemoAgent> {
  const directory = join(gateway.directory, name)
  await gateway.sallyport('agent', name, '--caps', capabilities.join(','), '--out', directory)
  const read = (file: string): Promise<string> => readFile(join(directory, file), 'utf8')
  const connect = {
    ca: await read('org-ca.crt'),
    cert: await read('agent.crt'),
    key: await read('agent.key'),
  }
  const dispatcher = new Agent({ connect })
  const certified = (input: RequestInfo, init?: RequestInit) => fetch(input, { ...init, dispatcher })
  // The same fetch as the global one; its types know of a dispatcher, which those do not.
  const presenting = certified as unknown as typeof globalThis.fetch
  const options = { apiKey: NO_KEY, fetch: presenting, maxRetries: 0 }
  return {
    id: `acme::${name}`,
    name,
    fetch: presenting,
    openai: new OpenAI({ ...options, baseURL: `${gateway.url}/v1` }),
    anthropic: new Anthropic({ ...options, baseURL: gateway.url }),
    close: () => dispatcher.destroy(),
  }
}

export type SayLine = (line: string) => void

const PROMPT = [{ role: 'user' as const, content: 'Say hello.' }]
const SLOW_PROMPT = [{ role: 'user' as const, content: 'Say something slowly.' }]

const SERVED = 5

/** Enrolls two agents and plays every call with both SDKs. Resolves to the agent that may call. */
export async function playCalls(
  gateway: DemoGateway,
  provider: MockProvider,
  stage: AsyncDisposableStack,
  say: SayLine,
): Promise<DemoAgent> {
  const writer = await enrollDemoAgent(gateway, 'writer', ['llm.chat'])
  const guest = await enrollDemoAgent(gateway, 'guest', [])
  stage.defer(writer.close)
  stage.defer(guest.close)
  say(`  agents    ${writer.id} holds llm.chat; ${guest.id} holds nothing; each has a client certificate\n`)

  say(demoRow('allowed', writer, 'openai', quoteText(await askOpenai(writer))))
  say(demoRow('allowed', writer, 'anthropic', quoteText(await askAnthropic(writer))))
  say(demoRow('denied', guest, 'openai', await refusal(askOpenai(guest), OpenAI.PermissionDeniedError)))
  say(
    demoRow(
      'denied',
      guest,
      'anthropic',
      await refusal(askAnthropic(guest), Anthropic.PermissionDeniedError),
    ),
  )
  await printStream('openai', writer, streamOpenai(writer))
  await printStream('anthropic', writer, streamAnthropic(writer))
  await grantAndRevoke(gateway, guest, say)
  await checkKeys(provider, say)
  return writer
}

export const demoRow = (what: string, { name }: Pick<DemoAgent, 'name'>, sdk: string, said: string): string =>
  `  ${what.padEnd(8)}  ${name.padEnd(8)}  ${sdk.padEnd(9)}  ${said}`

const quoteText = (text: string): string => `"${text}"`

async function askOpenai({ openai }: DemoAgent): Promise<string> {
  const { choices } = await openai.chat.completions.create({ model: 'gpt-demo', messages: PROMPT })
  return answer(choices[0]?.message.content)
}

async function askAnthropic({ anthropic }: DemoAgent): Promise<string> {
  const body = { model: 'claude-demo', max_tokens: 64, messages: PROMPT }
  const { content } = await anthropic.messages.create(body)
  return answer(content.map((block) => (block.type === 'text' ? block.text : '')).join(''))
}

function answer(text: string | null | undefined): string {
  if (text) return text
  throw new Error('an allowed call was answered without any text')
}

/** Returns a denied call as a program sees it: the SDK's own error, and the sentence it carries. */
async function refusal(
  call: Promise<string>,
  denied: typeof OpenAI.PermissionDeniedError | typeof Anthropic.PermissionDeniedError,
): Promise<string> {
  const error = await call.then(
    () => new Error('it was served'),
    (reason: unknown) => reason,
  )
  if (error instanceof denied) return `${error.constructor.name}: ${error.message}`
  const what = messageOf(error)
  throw new Error(`a call without the capability should be a PermissionDeniedError: ${what}`)
}

async function* streamOpenai({ openai }: DemoAgent): AsyncGenerator<string> {
  const counted = { stream_options: { include_usage: true } }
  const body = { model: 'gpt-demo', messages: SLOW_PROMPT, stream: true as const, ...counted }
  for await (const { choices } of await openai.chat.completions.create(body)) {
    yield choices[0]?.delta.content ?? ''
  }
}

async function* streamAnthropic({ anthropic }: DemoAgent): AsyncGenerator<string> {
  const body = { model: 'claude-demo', max_tokens: 64, messages: SLOW_PROMPT, stream: true as const }
  for await (const event of await anthropic.messages.create(body)) {
    if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') yield event.delta.text
  }
}

async function printStream(sdk: string, agent: DemoAgent, pieces: AsyncIterable<string>): Promise<void> {
  process.stdout.write(`${demoRow('streamed', agent, sdk, '')}"`)
  const started = performance.now()
  const arrivals: number[] = []
  for await (const piece of pieces) {
    if (piece === '') continue
    arrivals.push(performance.now() - started)
    process.stdout.write(piece)
  }
  const [first = 0, last = 0] = [arrivals.at(0), arrivals.at(-1)].map((ms) => Math.round(ms ?? 0))
  process.stdout.write(`" (${arrivals.length} pieces, the first after ${first} ms, the last after ${last})\n`)
  if (arrivals.length < 2 || last <= first) throw new Error('a streamed answer did not come piece by piece')
}

async function grantAndRevoke({ admin }: DemoGateway, guest: DemoAgent, say: SayLine): Promise<void> {
  const patch = (capabilities: readonly string[]): Promise<unknown> =>
    admin('PATCH', `/v1/admin/agents/${guest.id}/capabilities`, { capabilities })
  const operator = { name: 'operator' }
  await patch(['llm.chat'])
  say(demoRow('granted', operator, 'admin API', `PATCH ${guest.id} to ["llm.chat"]`))
  say(demoRow('allowed', guest, 'openai', quoteText(await askOpenai(guest))))
  await patch([])
  say(
    demoRow('revoked', operator, 'admin API', `PATCH ${guest.id} to [], which holds from the next call on:`),
  )
  say(demoRow('denied', guest, 'openai', await refusal(askOpenai(guest), OpenAI.PermissionDeniedError)))
}

/** Checks that the provider got its key from the gateway, and never heard of the denied calls. */
async function checkKeys(provider: MockProvider, say: SayLine): Promise<void> {
  const came = provider.answered()
  if (came.length !== SERVED || came.some((status) => status !== 200)) {
    throw new Error(
      `the provider should have answered ${SERVED} calls with 200, and answered ${came.join(', ')}`,
    )
  }
  const direct = new OpenAI({ baseURL: `${provider.url}/v1`, apiKey: NO_KEY, maxRetries: 0 })
  const { status } = await direct.chat.completions
    .create({ model: 'gpt-demo', messages: PROMPT })
    .asResponse()
    .catch((error: unknown) => (error instanceof OpenAI.APIError ? error : { status: 0 }))
  if (status !== 401) throw new Error('the provider should refuse the key of the agents')
  say(
    `\n  The provider saw ${SERVED} calls, each with the gateway's key; asked directly with the agents' key, it answers 401.`,
  )
}
