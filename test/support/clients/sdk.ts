import Anthropic from '@anthropic-ai/sdk'
import { LLMock } from '@copilotkit/aimock'
import OpenAI from 'openai'
import type { Test } from 'tap'
import { Agent, fetch } from 'undici'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import type { Identity, TestGateway } from '../gateway.ts'

/**
 * The only key that the mock provider answers to. A call that carries the client's own key is refused there.
 */
const PROVIDER_KEY = 'sk-provider-only'

/** What the mock provider says to any prompt it has no other answer for. */
export const SAID = 'Hello from a provider that nobody here wrote.'

/**
 * An independent mock provider on a port of its own, and the operator file that makes it both of the
 * gateway's providers.
 */
export async function mockProvider(
  t: Test,
): Promise<{ mock: LLMock; files: Readonly<Record<string, string>> }> {
  const mock = new LLMock({ port: 0, host: '127.0.0.1', auth: { apiKeys: [PROVIDER_KEY] } })
  // Small chunks, each in a write of its own, so that a stream is one.
  const slowly = { chunkSize: 6, latency: 2 }
  const usage = { prompt_tokens: 7, completion_tokens: 9, input_tokens: 7, output_tokens: 9 }
  mock.onMessage('too fast', {
    error: { message: 'slow down', type: 'rate_limit_error' },
    status: 429,
    retryAfter: 7,
  })
  mock.onMessage('break off', { content: SAID, usage }, { ...slowly, truncateAfterChunks: 4 })
  mock.onMessage(/./, { content: SAID, usage }, slowly)
  mock.onEmbedding(/./, { embedding: [0.25, 0.5, 0.75] })
  const url = await mock.start()
  t.teardown(() => mock.stop())
  const provider = (dialect: string, models: string): string =>
    `  - {name: ${dialect}, dialect: ${dialect}, base_url: "${url}/v1", api_key: ${PROVIDER_KEY}, models: ${models}}\n`
  const file = `plugin: llm\nproviders:\n${provider('openai', '["gpt-*", "text-embedding-*"]')}${provider('anthropic', '["claude-*"]')}`
  return { mock, files: { '50-llm.yaml': file } }
}

type Journal = ReturnType<LLMock['getRequests']>

/**
 * The calls that reached the provider, in order: all requests but the gateway's own readings of the list of
 * models.
 */
export const callsOf = (mock: LLMock): Journal =>
  mock.getRequests().filter(({ method, path }) => method !== 'GET' || !path.startsWith('/v1/models'))

/**
 * How a client is pointed at the gateway: `fetch` and `Agent` must be of the same undici
 * (docs/protocol.md#clients).
 */
function connection(t: Test, { ca }: TestGateway, who: Identity | null) {
  const dispatcher = new Agent({ connect: { ca, ...(who && { cert: who.cert, key: who.key }) } })
  t.teardown(() => dispatcher.destroy())
  return {
    // A vendor SDK demands some key; the gateway ignores it beside a certificate.
    apiKey: 'unused',
    // The same fetch; its types know of a dispatcher, which the global ones do not.
    fetch: fetch as unknown as typeof globalThis.fetch,
    fetchOptions: { dispatcher },
  }
}

/** The OpenAI SDK, unmodified. Its base URL ends with /v1, or does not by mistake. */
export const openaiOf = (t: Test, gateway: TestGateway, who: Identity | null, path = '/v1'): OpenAI =>
  new OpenAI({ baseURL: gateway.url + path, ...connection(t, gateway, who) })

/** The Anthropic SDK, unmodified. Its base URL does not end with /v1, or does by mistake. */
export const anthropicOf = (t: Test, gateway: TestGateway, who: Identity | null, path = ''): Anthropic =>
  new Anthropic({ baseURL: gateway.url + path, ...connection(t, gateway, who) })

/** What a promise was rejected with, as the class a client's code would catch. */
export async function caught<E extends Error>(
  call: PromiseLike<unknown>,
  // biome-ignore lint/suspicious/noExplicitAny: any constructor of that error will do
  kind: new (...args: any[]) => E,
): Promise<E> {
  try {
    await call
  } catch (error) {
    if (error instanceof kind) return error
    throw error
  }
  throw new Error(`the call was answered, and a ${kind.name} was expected`)
}

/**
 * The outcome rows of one provider's calls. Stops the gateway first: an outcome is written after the caller
 * has its answer.
 */
export async function outcomesOf(gateway: TestGateway, provider: string): Promise<readonly AuditRow[]> {
  await gateway.close()
  return (await gateway.rows()).filter((row) => row.provider === provider)
}

/**
 * The log lines of all answers of one status. Stops the gateway first: a line is written after the caller has
 * its answer.
 */
export async function answersOf(gateway: TestGateway, status: number): Promise<TestGateway['log']> {
  await gateway.close()
  return gateway.log.filter((line) => line.status === status)
}
