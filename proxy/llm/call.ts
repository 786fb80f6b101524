import type { CallSummary } from '../../plugins/facts.ts'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { DialectName, Endpoint } from './dialects/registry.ts'

/**
 * The model that an LLM request asks for, and its endpoint: judged by the gate, dispatched by the handler.
 */
export interface LlmTarget {
  readonly endpoint: Endpoint
  readonly dialect: DialectName
  /** As the caller spelled it: prefix, alias and all. */
  readonly model: string
}

interface Gives {
  readonly call: CallSummary
  readonly target: LlmTarget
}

/**
 * Reads `model` and `stream` from the parsed body, and nothing else: everything further is between caller and
 * provider. Refuses with `body_invalid`. Does NOT check that any provider serves the model.
 */
export function llmCall(endpoint: Endpoint): Plugin<Arrival & JsonBody, Gives> {
  return {
    name: 'llm_call',
    admit: ({ json }) => {
      const model = readModel(json.model)
      return {
        call: { model, tool: null, stream: readStream(json.stream) },
        target: { endpoint, dialect: endpoint.dialect, model },
      }
    },
  }
}

function readModel(value: unknown): string {
  if (typeof value !== 'string' || value === '') throw refused('model must be a non-empty string.')
  // A lone surrogate would stop the ledger, which stores UTF-8; a control character would reach logs.
  if (value.length > 256 || !value.isWellFormed() || /\p{Cc}/u.test(value)) {
    throw refused('model must be at most 256 characters, none of them a control character.')
  }
  return value
}

/** Null counts as false, as it does for the vendors. */
function readStream(value: unknown): boolean {
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw refused('stream must be true or false.')
  return value
}

const refused = (message: string): Refusal => new Refusal('body_invalid', { message })
