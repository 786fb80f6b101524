import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { LimitedThings } from '../../../plugins/limits/limits.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { LlmOptions } from '../options.ts'
import { type AskedTarget, type LlmTarget, type ProviderRouting, providerRouting } from '../routing.ts'
import { BOUNDS, broughtInBy } from './brought-in.ts'

type LimitedBody = Pick<JsonBody, 'body' | 'json' | 'scan'> &
  Pick<Arrival, 'hangup'> & { readonly target: LlmTarget }

/** Says of a call of a model what limits look at: the models as they are routed, whatever the caller called them. */
export function limitedModels(options: LlmOptions): (facts: LimitedBody) => LimitedThings {
  const route = providerRouting(options)
  return (facts) => {
    const { json, target } = facts
    const { endpoint } = target
    const targets = routed(route, target)
    return {
      models: targets.map(({ provider, model }) => `${provider.name}/${model ?? ''}`),
      tool: null,
      size: sizeOf(facts, targets),
      wire: endpoint.wire,
      words: { service_tier: json.service_tier, speed: json.speed, geo: json.inference_geo },
      // What costs nothing brings in nothing.
      ...(!endpoint.isFree && { broughtIn: () => broughtInBy(facts) }),
    }
  }
}

function routed(route: ProviderRouting, { model, endpoint }: LlmTarget): readonly AskedTarget[] {
  try {
    return route(model, endpoint)
  } catch (error) {
    // No provider has it: the call is refused where it would be sent.
    if (error instanceof Refusal) return []
    throw error
  }
}

function sizeOf(
  { body, json, target: { endpoint } }: LimitedBody,
  targets: readonly AskedTarget[],
): LimitedThings['size'] {
  if (endpoint.isFree) return { bytes: 0, maxOutput: 0 }
  const maxOutput = endpoint.upstreamPath === EMBEDDINGS ? 0 : boundOf(json)
  return { bytes: body.length, maxOutput, isTranslated: targets.some(({ wire }) => wire !== null) }
}

/** The path of what only reads. */
const EMBEDDINGS = '/embeddings'

/** Returns the most that all answers of a call may have. Of two bounds nobody knows which one a provider takes. */
function boundOf(json: JsonBody['json']): number | null {
  const stated = BOUNDS.map((name) => json[name]).filter((value) => value !== undefined && value !== null)
  const bounds = stated.filter((value) => typeof value === 'number' && value >= 0)
  if (stated.length === 0 || bounds.length < stated.length) return null
  return Math.ceil(Math.max(...bounds.map(Number)) * answersOf(json))
}

/** Counts the answers to a call; the old completions answer each text of a list. */
function answersOf({ n, best_of: tried, prompt }: JsonBody['json']): number {
  const asked = Math.max(1, ...[n, tried].filter((count) => typeof count === 'number'))
  const isList = Array.isArray(prompt) && typeof prompt[0] !== 'number'
  return asked * (isList ? Math.max(1, prompt.length) : 1)
}
