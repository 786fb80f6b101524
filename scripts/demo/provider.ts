import { randomBytes } from 'node:crypto'
import { LLMock } from '@copilotkit/aimock'

export interface MockProvider {
  readonly url: string
  /** The one key it answers to. */
  readonly key: string
  /** The status of each LLM call that came, in order. */
  readonly answered: () => readonly number[]
  readonly stop: () => Promise<void>
}

const SAID = 'Hello from the provider behind the gateway.'
const STREAMED = 'Each piece of this answer is passed on the moment it comes.'

export async function startMockProvider(): Promise<MockProvider> {
  const key = `sk-demo-${randomBytes(12).toString('hex')}`
  const mock = new LLMock({ port: 0, host: '127.0.0.1', auth: { apiKeys: [key] } })
  const usage = { prompt_tokens: 8, completion_tokens: 14, input_tokens: 8, output_tokens: 14 }
  mock.onMessage('slowly', { content: STREAMED, usage }, { chunkSize: 8, latency: 60 })
  mock.onMessage(/./, { content: SAID, usage }, { chunkSize: 8, latency: 60 })
  const url = await mock.start()
  return {
    url,
    key,
    answered: () =>
      mock
        .getRequests()
        .filter(({ method }) => method === 'POST')
        .map(({ response }) => response.status),
    stop: () => mock.stop(),
  }
}

/** The operator files of a gateway before the mock. The key comes from the environment. */
export const demoOperatorFiles = (url: string): Readonly<Record<string, string>> => ({
  '10-pin.yaml': 'plugin: pin\n',
  '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\n',
  '30-capability.yaml': 'plugin: capability\n',
  '40-audit.yaml': 'plugin: audit\n',
  '50-llm.yaml': `plugin: llm
providers:
  - name: openai
    dialect: openai
    base_url: ${url}/v1
    api_key: \${env:DEMO_PROVIDER_KEY}
    models: ["gpt-*"]
  - name: anthropic
    dialect: anthropic
    base_url: ${url}/v1
    api_key: \${env:DEMO_PROVIDER_KEY}
    models: ["claude-*"]
`,
  '60-mcp.yaml': 'plugin: mcp\n',
})
