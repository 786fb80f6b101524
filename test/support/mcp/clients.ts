import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'
import type { Test } from 'tap'
import type { Fetch } from '../../../scripts/client/create-fetch.ts'
import type { Json } from '../gateway.ts'

const SELF = { name: 'sallyport-test', version: '1.0.0' }
const CAPABILITIES = { capabilities: { elicitation: {}, sampling: {}, roots: {} } }

/** What the client's model says to any prompt. */
export const SAMPLED = 'Paris.'

/** The era that a client of SDK v2 asks for; `auto` takes the modern one where the server has it. */
export type Mode = 'legacy' | 'modern' | 'auto'

/**
 * The official SDK v1 (2025-11-25), connected, and closed with the test. It fills in what it is asked: see
 * {@link filledIn} and {@link SAMPLED}. `fetch`: the helper's, for a gateway; the global one for a server.
 */
export async function sdkV1(t: Test, url: string, fetch: Fetch): Promise<ClientV1> {
  const client = new ClientV1(SELF, CAPABILITIES)
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params))
  client.setRequestHandler(CreateMessageRequestSchema, () => sampled())
  client.setRequestHandler(ListRootsRequestSchema, () => rooted())
  const transport = new TransportV1(new URL(url), { fetch })
  t.teardown(() => client.close())
  // SDK v1 is written without exactOptionalPropertyTypes, and its own transport does not fit its own
  // interface with it.
  await client.connect(transport as Parameters<typeof client.connect>[0])
  return client
}

/**
 * The official SDK v2, as {@link sdkV1}. `mode: 'modern'` rejects where the server has no 2026-07-28; it
 * never falls back.
 */
export async function sdkV2(t: Test, url: string, fetch: Fetch, mode: Mode): Promise<ClientV2> {
  const pinned = mode === 'modern' ? ({ pin: '2026-07-28' } as const) : mode
  const client = new ClientV2(SELF, { ...CAPABILITIES, versionNegotiation: { mode: pinned } })
  client.setRequestHandler('elicitation/create', ({ params }) => filledIn(params))
  client.setRequestHandler('sampling/createMessage', () => sampled())
  client.setRequestHandler('roots/list', () => rooted())
  t.teardown(() => client.close())
  await client.connect(new TransportV2(new URL(url), { fetch }))
  return client
}

type Field = string | number | boolean | string[]

/**
 * A form with something of its type in every field: `Ada`, 1, true, and where there are choices the first of
 * them.
 */
export function filledIn(params: Json): { action: 'accept'; content: Record<string, Field> } {
  const fields = Object.entries<Json>(params.requestedSchema?.properties ?? {})
  return {
    action: 'accept',
    content: Object.fromEntries(fields.map(([name, field]) => [name, entry(field)])),
  }
}

function entry({ type, enum: values, oneOf, anyOf, items }: Json): Field {
  if (type === 'array') return [String(entry(items))]
  const choice = values?.[0] ?? (oneOf ?? anyOf)?.[0]?.const
  if (choice !== undefined) return choice
  if (type === 'boolean') return true
  return type === 'string' ? 'Ada' : 1
}

const sampled = () => ({
  role: 'assistant' as const,
  model: 'test-model',
  content: { type: 'text' as const, text: SAMPLED },
})

const rooted = () => ({ roots: [{ uri: 'file:///workspace', name: 'workspace' }] })
