import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { Agent, fetch, type RequestInfo, type RequestInit } from 'undici'
import type { DemoGateway } from './gateway.ts'

/** An enrolled agent with the vendors' SDKs, unmodified, and its client certificate. */
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
export const NO_KEY = 'unused'

/** Enrolls an agent as an operator does, with `sallyport agent`, and points the SDKs at the gateway. */
export async function enrollDemoAgent(
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
