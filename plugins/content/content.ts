import type { CallGrant, ToolCall } from '../facts.ts'
import type { CheckFacts } from '../operator-files/module.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { type ContentJudge, type ContentJudgement, type JudgedMessage, openContentJudge } from './judge.ts'
import type { ContentOptions } from './options.ts'
import type { ContentPlace, ContentVerdict } from './verdict.ts'

export type ContentFacts = Arrival &
  CheckFacts & { readonly body?: Buffer; readonly toolCall?: ToolCall; readonly grant?: CallGrant }

/** The check of requests, and the judge of answers. */
export interface OpenedContent {
  readonly check: Plugin<ContentFacts, object>
  readonly digest: string
  readonly content: ContentJudge
  readonly close: () => Promise<void>
}

/** Opens the check of content (docs/content.md). Throws an Error with one sentence if it cannot be used. */
export async function openContent(options: ContentOptions): Promise<OpenedContent> {
  const content = await openContentJudge(options)
  return { check: contentCheck(content), digest: content.digest, content, close: () => content.close() }
}

/**
 * Judges what a call sends, after the gate: it can only refuse. Refuses with `content_refused`; with `plugin_failed`
 * if it cannot be judged, or not in time.
 */
export function contentCheck(judge: ContentJudge): Plugin<ContentFacts, object> {
  return {
    name: 'content',
    admit: (facts) => {
      const place = facts.toolCall ? 'tool_arguments' : 'request'
      if (!judge.looksAt(place) || !facts.body) return {}
      const judged = judge.judge(facts.body, judgedMessage(facts, place))
      return judged instanceof Promise ? judged.then(admitted) : admitted(judged)
    },
  }
}

/** Describes a message of a call. */
export const judgedMessage = (
  { id, granted, call, grant, hangup }: Pick<ContentFacts, 'id' | 'granted' | 'call' | 'grant' | 'hangup'>,
  place: ContentPlace,
): JudgedMessage => ({
  ...{ place, isJson: true, requestId: id, hangup },
  principal: { id: granted.principal.id, type: granted.principal.type },
  client: grant?.client ?? null,
  model: call.model,
  tool: call.tool,
})

function admitted(judged: ContentJudgement): { readonly content: ContentVerdict } {
  const refusal = contentRefusal(judged, 'request')
  if (refusal) throw refusal
  return { content: judged.verdict }
}

/** Makes the refusal of a judgement; null: it passes. An answer is refused as a fault of whoever gave it. */
export function contentRefusal(
  { verdict, reason, cause }: ContentJudgement,
  what: 'request' | 'answer',
): Refusal | null {
  const report = { content: verdict }
  if (verdict.verdict === 'pass') return null
  if (verdict.verdict === 'failed') return new Refusal('plugin_failed', { cause, report })
  const [first] = verdict.findings
  const found = first ? ` (${first.rule} in ${first.where})` : ''
  const message =
    reason ??
    (what === 'request'
      ? `The request holds a secret${found}. Take it out, or ask an operator to allow it.`
      : `The answer holds a secret${found}, and is not passed on. Ask an operator to allow it.`)
  return new Refusal('content_refused', {
    message,
    detail: { content: verdict.findings },
    report,
    ...(what === 'answer' && { status: 502, final: true }),
  })
}
