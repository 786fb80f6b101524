import { isObject } from '../../../db/support/json.ts'
import type { CallHistograms } from './histograms.ts'
import { ATTRIBUTES as NAME } from './names.ts'
import { addressOf, attemptError, errorTypeOf, genaiOperationOf, type SpannedCall } from './spans.ts'

/** Counts a call in the histograms of the conventions: each request to a provider, its tokens, an MCP message. */
export function recordFigures(histograms: CallHistograms, ended: SpannedCall): void {
  if (ended.surface === 'llm') recordModelCall(histograms, ended)
  else recordMessage(histograms, ended)
}

function recordModelCall({ duration, tokens }: CallHistograms, ended: SpannedCall): void {
  const operation = { [NAME.operation]: genaiOperationOf(ended) }
  for (const attempt of ended.attempts) {
    const { request, beganMs, endedMs } = attempt
    duration.record(((endedMs ?? ended.endedMs) - beganMs) / 1_000, {
      ...operation,
      [NAME.provider]: request.upstream,
      [NAME.requestModel]: request.model,
      ...addressOf(request),
      [NAME.errorType]: attemptError(ended, attempt),
    })
  }
  const { detail, upstream } = ended.call
  const model = ended.attempts.at(-1)?.request.model
  if (!isObject(detail.tokens)) return
  for (const type of ['input', 'output'] as const) {
    const count = detail.tokens[type]
    if (typeof count !== 'number') continue
    const named = { [NAME.provider]: upstream, [NAME.requestModel]: model, [NAME.tokenType]: type }
    tokens.record(count, { ...operation, ...named })
  }
}

/** Names of refused tools are the callers' own, so that they would make series without end. */
function recordMessage({ mcp }: CallHistograms, ended: SpannedCall): void {
  const { call, beganMs, endedMs } = ended
  const { message } = call.facts
  if (!message || message.method === '') return
  mcp.record((endedMs - beganMs) / 1_000, {
    [NAME.mcpMethod]: message.method,
    [NAME.mcpVersion]: message.version,
    [NAME.operation]: genaiOperationOf(ended),
    [NAME.tool]: call.allowed ? call.facts.call?.tool : null,
    [NAME.errorType]: errorTypeOf(call),
  })
}
