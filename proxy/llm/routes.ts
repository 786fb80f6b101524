import type { DecisionFacts } from '../../plugins/audit/audit.ts'
import type { Arrival, Pipeline, Recorder } from '../../plugins/plugin.ts'
import type { Reply } from '../http/reply.ts'
import { type BareRoute, gatedRoute, openRoute, withRouteDoc } from '../http/route.ts'
import { LLM_ENDPOINTS, type LlmEndpoint } from './dialects/registry.ts'
import type { LlmFacts } from './handler.ts'
import type { ModelHandlers } from './models.ts'
import { llmCallDoc, MODEL, MODELS } from './route-docs.ts'

interface LlmPipelines<Call extends LlmFacts & DecisionFacts, Known extends Arrival> {
  readonly call: (endpoint: LlmEndpoint) => Pipeline<Call>
  readonly models: Pipeline<Known>
}

export interface LlmHandlers {
  readonly call: (facts: LlmFacts) => Promise<Reply>
  readonly models: ModelHandlers
}

export function llmRoutes<Call extends LlmFacts & DecisionFacts, Known extends Arrival>(
  pipelines: LlmPipelines<Call, Known>,
  { call, models: { list, get } }: LlmHandlers,
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
  const lists = ['/v1/models', '/v1/egress/models']
  // An id may hold slashes: `provider/model`, and a model of that name by its maker.
  const ids = [
    '{id}',
    '{provider}/{id}',
    '{provider}/{maker}/{id}',
    '{provider}/{maker}/{family}/{id}',
    '{provider}/{maker}/{family}/{series}/{id}',
  ]
  return [...calls, ...lists.map(models), ...lists.flatMap((list) => ids.map((id) => model(`${list}/${id}`)))]
}
