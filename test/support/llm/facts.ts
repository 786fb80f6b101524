import type { IncomingHttpHeaders } from 'node:http'
import { pino } from 'pino'
import { OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import { jsonBody } from '../../../plugins/json-body/json-body.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import type { Reply } from '../../../proxy/http/reply.ts'
import { ModelMismatches } from '../../../proxy/llm/answered-models.ts'
import { ProviderKeys } from '../../../proxy/llm/credentials/provider-keys.ts'
import { LLM_ENDPOINTS, type LlmEndpoint } from '../../../proxy/llm/dialects/registry.ts'
import { ProviderBreakers } from '../../../proxy/llm/health/breaker.ts'
import type { LlmFacts, LlmServices } from '../../../proxy/llm/llm-call.ts'
import { type LlmOptions, llmOptions } from '../../../proxy/llm/options.ts'
import { llmCall } from '../../../proxy/llm/routing.ts'
import type { LlmUpstream } from '../../../proxy/llm/upstream/client.ts'
import { idempotencyKeys } from '../../../proxy/llm/upstream/idempotency-keys.ts'
import { grantOf } from '../permit.ts'
import { heldFor } from '../plugins/arrival.ts'

interface Request {
  readonly path?: string
  readonly query?: string
  readonly headers?: IncomingHttpHeaders
  readonly body?: unknown
  readonly hangup?: CallHangup
  readonly at?: number
}

export function arrival({
  path = '/v1/chat/completions',
  query = '',
  headers = {},
  body,
  hangup = new CallHangup(),
  at = 0,
}: Request = {}): Arrival {
  const bytes = typeof body === 'string' ? Buffer.from(body) : Buffer.from(JSON.stringify(body ?? null))
  return {
    id: 'req_test',
    at,
    method: 'POST',
    path,
    query,
    params: {},
    headers,
    remoteAddress: '127.0.0.1',
    localUid: null,
    peer: null,
    readBody: () => Promise.resolve(bytes),
    held: heldFor(),
    answer: {},
    hangup,
    authority: OWN_AUTHORITY,
  }
}

export function endpointAt(path: string): LlmEndpoint {
  const endpoint = LLM_ENDPOINTS.find((one) => one.path === path)
  if (!endpoint) throw new Error(`no endpoint at ${path}`)
  return endpoint
}

/**
 * The facts as the pipeline would establish them, by the real plugins. A body that is a string goes as it is.
 */
export async function facts(request: Request): Promise<LlmFacts> {
  const start = arrival(request)
  const withBody = { ...start, ...(await jsonBody({ limit: 1024 * 1024 * 32 }).admit(start)) }
  const { target } = await llmCall(endpointAt(start.path)).admit(withBody)
  const commitments = commitmentsBy(Buffer.alloc(32), start.id)
  return {
    ...withBody,
    commitments,
    stateAt: null,
    granted: grantOf({ action: 'egress_llm_chat', demanded: ['llm.chat'] }, target),
  }
}

type Loose = Readonly<Record<string, unknown>>

/** Options as an operator's file would give them. */
export const options = (providers: readonly Loose[], more: Loose = {}): LlmOptions =>
  llmOptions.parse({ providers, ...more })

/** The services of a handler, which outlive its configuration. */
export const servicesWith = (upstream: LlmUpstream): LlmServices => ({
  upstream,
  providerKeys: new ProviderKeys({ upstream, clock: Date.now, log: pino({ level: 'silent' }) }),
  breakers: new ProviderBreakers({ now: () => performance.now(), clock: Date.now }),
  idempotencyKeys: idempotencyKeys(Buffer.alloc(32)),
  loopToken: 'sallyport-test',
  states: { note: () => {} },
  modelMismatches: new ModelMismatches(() => {}),
})

export const openai = (base_url: string, more: Loose = {}): Loose => ({
  name: 'openai',
  dialect: 'openai',
  base_url,
  api_key: 'sk-up-1',
  models: ['gpt-*'],
  ...more,
})

export const anthropic = (base_url: string, more: Loose = {}): Loose => ({
  name: 'anthropic',
  dialect: 'anthropic',
  base_url,
  api_key: 'sk-ant-up-1',
  models: ['claude-*'],
  ...more,
})

export interface Received {
  readonly text: string
  readonly chunks: readonly string[]
  /** The event that a client would get after the last chunk; null where the answer came whole. */
  readonly brokenOff: string | null
}

/** Takes a reply as the server's sender would, without a client. */
export async function receive({ body }: Reply): Promise<Received> {
  if (body === undefined || typeof body === 'string' || Buffer.isBuffer(body)) {
    return { text: String(body ?? ''), chunks: [], brokenOff: null }
  }
  const chunks: Buffer[] = []
  let whole = false
  body.source.on('data', (piece: Buffer) => {
    chunks.push(piece)
    body.observe?.(piece)
  })
  body.source.once('end', () => {
    whole = true
  })
  await new Promise((resolve) => {
    body.source.once('close', resolve)
  })
  return {
    text: Buffer.concat(chunks).toString(),
    chunks: chunks.map(String),
    brokenOff: whole ? null : (body.brokenOff?.() ?? ''),
  }
}
