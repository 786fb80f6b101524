import type { CallSummary } from '../../plugins/facts.ts'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { Endpoint } from './dialects/endpoints.ts'
import type { Dialect } from './options.ts'

/** What an LLM request asks for, as far as the gateway must know. Given by `llm_call`. */
export interface LlmCall extends CallSummary {
  readonly endpoint: Endpoint
  readonly dialect: Dialect
  /** As the caller spelled it: prefix, alias and all. */
  readonly model: string
  readonly tool: null
}

/**
 * Reads `model` and `stream` from the parsed body, and nothing else: everything further is between caller and provider.
 * Refuses with `body_invalid`. Does NOT check that any provider serves the model.
 */
export function llmCall(endpoint: Endpoint): Plugin<Arrival & JsonBody, { call: LlmCall }> {
  return {
    name: 'llm_call',
    needs: ['json'],
    gives: ['call'],
    admit: ({ json }) => ({
      call: {
        endpoint,
        dialect: endpoint.dialect,
        model: readModel(json.model),
        stream: readStream(json.stream),
        tool: null,
      },
    }),
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

/** The vendors take null for false, so we do. */
function readStream(value: unknown): boolean {
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw refused('stream must be true or false.')
  return value
}

const refused = (message: string): Refusal => new Refusal('body_invalid', { message })
