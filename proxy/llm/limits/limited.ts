import { isObject } from '../../../db/support/json.ts'
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
    size: { bytes: body.length, maxOutput: boundOf(json), ...unboundedIn(json) },
    wire: endpoint.wire,
    words: { service_tier: json.service_tier, speed: json.speed, geo: json.inference_geo },
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
  if (typeof bound !== 'number' || bound < 0) return null
  const choices = typeof json.n === 'number' && json.n > 1 ? json.n : 1
  return Math.ceil(bound * choices)
}

/** Members by which a body goes on from what a provider keeps, or has it read elsewhere. */
const OUTSIDE = ['previous_response_id', 'conversation', 'container', 'mcp_servers'] as const

/** Tools that the caller runs; the provider runs the others, and reads what they find. */
const CALLERS_TOOL =
  /^(?:function|custom|local_shell|apply_patch|(?:bash|text_editor|computer|memory)_\d{8})$/

/** Names the member of a body that brings in what has no bound. Does NOT look for files and links in messages. */
function unboundedIn(json: JsonBody['json']): { readonly unbounded?: string } {
  const member = OUTSIDE.find((name) => json[name] !== undefined && json[name] !== null)
  if (member) return { unbounded: member }
  const { tools } = json
  const isProviders = (tool: unknown): boolean =>
    isObject(tool) && typeof tool.type === 'string' && !CALLERS_TOOL.test(tool.type)
  return Array.isArray(tools) && tools.some(isProviders) ? { unbounded: 'tools' } : {}
}
