import { z } from 'zod'
import type { DecisionFacts } from '../../plugins/audit/audit.ts'
import type { Principal } from '../../plugins/facts.ts'
import type { Arrival, Pipeline, Recorder } from '../../plugins/plugin.ts'
import type { RefusalReason } from '../../plugins/refusal.ts'
import {
  type AnswerDoc,
  BODY_REASONS,
  GATED_REASONS,
  KNOWN_CALLER_REASONS,
  type RouteDoc,
} from '../http/doc.ts'
import type { Reply } from '../http/reply.ts'
import { type BareRoute, gatedRoute, openRoute, withRouteDoc } from '../http/route.ts'
import type { DialectEndpoint } from './dialects/dialect.ts'
import { LLM_ENDPOINTS, type LlmEndpoint } from './dialects/registry.ts'
import { OWN_LIMITS } from './limits/own-limits.ts'
import type { LlmFacts } from './llm-call.ts'
import type { ModelHandlers } from './models.ts'

type KnownFacts = Arrival & { readonly principal: Principal }

interface LlmPipelines<Call extends LlmFacts & DecisionFacts, Known extends KnownFacts> {
  readonly call: (endpoint: LlmEndpoint) => Pipeline<Call>
  readonly models: Pipeline<Known>
}

export interface LlmHandlers {
  readonly call: (facts: LlmFacts) => Promise<Reply>
  readonly models: ModelHandlers
  readonly limits: (facts: KnownFacts) => Promise<Reply>
}

export function llmRoutes<Call extends LlmFacts & DecisionFacts, Known extends KnownFacts>(
  pipelines: LlmPipelines<Call, Known>,
  { call, models: { list, get }, limits }: LlmHandlers,
  { calls: recorder, anonymous }: { readonly calls: Recorder<Call>; readonly anonymous: Recorder<Arrival> },
): readonly BareRoute[] {
  const calls = LLM_ENDPOINTS.map((endpoint) =>
    withRouteDoc(
      gatedRoute('POST', endpoint.path, { pipeline: pipelines.call(endpoint), recorder }, call),
      llmCallDoc(endpoint),
    ),
  )
  const models = (path: string) =>
    withRouteDoc(openRoute('GET', path, pipelines.models, list, anonymous), MODELS)
  const model = (path: string) =>
    withRouteDoc(openRoute('GET', path, pipelines.models, get, anonymous), MODEL)
  const own = withRouteDoc(openRoute('GET', '/v1/limits', pipelines.models, limits, anonymous), OWN_LIMITS)
  const lists = ['/v1/models', '/v1/egress/models']
  // An id may hold slashes: `provider/model`, and a model of that name by its maker.
  const ids = [
    '{id}',
    '{provider}/{id}',
    '{provider}/{maker}/{id}',
    '{provider}/{maker}/{family}/{id}',
    '{provider}/{maker}/{family}/{series}/{id}',
  ]
  return [
    ...calls,
    own,
    ...lists.map(models),
    ...lists.flatMap((list) => ids.map((id) => model(`${list}/${id}`))),
  ]
}

const HEADERS = {
  DPoP: 'A proof of possession (RFC 9449): a new one for each request.',
  Authorization: 'DPoP or Bearer, and an access token or an API key of this service.',
}

const request = z.looseObject({ model: z.string() }).meta({
  id: 'ModelRequest',
  description: "A request of the vendor's own API. It is passed on byte for byte.",
})
const requestWithoutModel = z.looseObject({ model: z.string().nullish() }).meta({
  id: 'ResponsesRequest',
  description: 'The same, without a model if a stored prompt names it: the default provider is asked.',
})
const answer = z.looseObject({}).meta({
  id: 'ModelAnswer',
  description: "The answer of the provider, in the form of the vendor's own API, passed on as it comes.",
})
const events = z.string().meta({ description: 'Server-sent events of the provider, passed on as they come.' })

const REASONS: readonly RefusalReason[] = [
  ...KNOWN_CALLER_REASONS,
  ...BODY_REASONS,
  ...GATED_REASONS,
  'member_refused',
  'provider_state_refused',
  'model_unknown',
  'dialect_translation_unavailable',
  'translation_lossy',
  'loop_detected',
  'provider_not_configured',
  'provider_auth_failed',
  'provider_refused',
  'provider_unreachable',
  'provider_failed',
  'provider_overloaded',
  'provider_timeout',
  'provider_rate_limited',
]

const RECEIPT = {
  'Audit-Receipt': 'The place of the decision in the ledger: stream, place and hash.',
  'RateLimit-Policy': 'The limits of calls that applied and show themselves.',
  RateLimit: 'What is left of each.',
}
const ANSWERS: Readonly<Record<number, AnswerDoc>> = {
  200: {
    description: "The provider's answer.",
    content: [{ schema: answer }, { media: 'text/event-stream', schema: events }],
    headers: RECEIPT,
  },
  400: {
    description: "The provider's own refusal of this request: any 4xx that is not about the gateway's key.",
    content: [{ schema: answer }],
    headers: RECEIPT,
  },
}

const calls = new Map<string, RouteDoc>()

/** The description of an LLM endpoint. Those of one operation share it, and so are aliases. */
function llmCallDoc({ doc: { name, summary, example }, modelOptional }: DialectEndpoint): RouteDoc {
  const known = calls.get(name)
  if (known) return known
  const made: RouteDoc = {
    name,
    summary: `${summary}. Requires llm.chat.`,
    caller: 'principal',
    headers: HEADERS,
    body: { schema: modelOptional ? requestWithoutModel : request, example },
    answers: ANSWERS,
    reasons: REASONS,
  }
  calls.set(name, made)
  return made
}

const openaiModel = z.strictObject({
  id: z.string(),
  object: z.literal('model'),
  created: z.int(),
  owned_by: z.string(),
})
const openaiList = z.strictObject({
  object: z.literal('list'),
  data: z.array(openaiModel),
})
const anthropicModel = z.strictObject({
  type: z.literal('model'),
  id: z.string(),
  display_name: z.string(),
  created_at: z.string(),
})
const anthropicList = z.strictObject({
  data: z.array(anthropicModel),
  has_more: z.boolean(),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
})

const LIST_HEADERS = {
  ...HEADERS,
  'anthropic-version': 'If it is sent, the answer has the form of Anthropic.',
}

const MODELS: RouteDoc = {
  name: 'listModels',
  summary: 'Lists the models that calls would reach.',
  caller: 'principal',
  headers: LIST_HEADERS,
  query: z.looseObject({
    limit: z.string().exactOptional(),
    after_id: z.string().exactOptional(),
    before_id: z.string().exactOptional(),
  }),
  answers: {
    200: { description: 'The models.', content: [{ schema: z.union([openaiList, anthropicList]) }] },
  },
  reasons: KNOWN_CALLER_REASONS,
}

const reach = z.enum(['direct', 'translated', 'none'])
const wires = z
  .strictObject({ chat: reach, responses: reach, messages: reach })
  .meta({ id: 'ModelWires', description: 'The APIs by which a call reaches the model.' })
const reached = {
  wires,
  lossy: z
    .array(z.string())
    .meta({ id: 'AcceptedLosses', description: 'The losses that an operator accepts for translated calls.' }),
}

const MODEL: RouteDoc = {
  name: 'getModel',
  summary: 'Shows one of the models that calls would reach.',
  caller: 'principal',
  headers: LIST_HEADERS,
  answers: {
    200: {
      description: 'The model.',
      content: [{ schema: z.union([openaiModel.extend(reached), anthropicModel.extend(reached)]) }],
    },
  },
  reasons: [...KNOWN_CALLER_REASONS, 'model_not_found'],
}
