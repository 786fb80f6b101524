import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { LimitedThings } from '../../../plugins/limits/limits.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { LlmOptions } from '../options.ts'
import { type LlmTarget, providerRouting } from '../routing.ts'

type LimitedBody = Pick<JsonBody, 'body' | 'json'> & { readonly target: LlmTarget }

/** The members by which APIs bound an answer. Tokens. */
const BOUNDS = ['max_output_tokens', 'max_completion_tokens', 'max_tokens'] as const

/** Says of a call of a model what limits look at: the models as they are routed, whatever the caller called them. */
export function limitedModels(options: LlmOptions): (facts: LimitedBody) => LimitedThings {
  const route = providerRouting(options)
  return ({ body, json, target: { model, endpoint } }) => ({
    models: routed(route, model, endpoint),
    tool: null,
    size: { bytes: body.length, maxOutput: boundOf(json) },
    wire: endpoint.wire,
  })
}

function routed(
  route: ReturnType<typeof providerRouting>,
  model: string | null,
  endpoint: LlmTarget['endpoint'],
): readonly string[] {
  try {
    return route(model, endpoint).map((one) => `${one.provider.name}/${one.model ?? ''}`)
  } catch (error) {
    // No provider has it: the call is refused where it would be sent.
    if (error instanceof Refusal) return []
    throw error
  }
}

function boundOf(json: JsonBody['json']): number | null {
  const bound = BOUNDS.map((name) => json[name]).find((value) => value !== undefined && value !== null)
  return typeof bound === 'number' && bound >= 0 ? Math.ceil(bound) : null
}
