import type { JsonObject } from '../../db/support/json.ts'
import { collectBytes } from '../../plugins/collect.ts'
import { contentRefusal, judgedMessage } from '../../plugins/content/content.ts'
import type { ContentJudge, ContentJudgement, JudgedMessage } from '../../plugins/content/judge.ts'
import type { ContentPlace } from '../../plugins/content/verdict.ts'
import type { CallGrant, CallSummary } from '../../plugins/facts.ts'
import type { CallPermit } from '../../plugins/permit.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { CallReport, Reply, StreamedBody } from '../http/reply.ts'
import { judgedSource } from './judged-source.ts'
import { ContentCut, JudgedStream } from './judged-stream.ts'

/** A judge of answers. */
export interface AnswerJudge {
  readonly judge: ContentJudge
  /** False: it only watches. */
  readonly enforces: boolean
}

type AnsweredCall = Arrival & {
  readonly granted: CallPermit
  readonly call?: CallSummary
  readonly grant?: CallGrant
}

interface ReplyJudging {
  readonly judges: readonly AnswerJudge[]
  readonly facts: AnsweredCall
  readonly place: ContentPlace
  /** Writes the event by which a stream says why it is cut. */
  readonly errorEvent: (refusal: Refusal) => string
}

/** Bytes. A longer answer that is no stream cannot be judged. */
const MAX_WHOLE = 32 * 1024 * 1024
const UNKNOWN: CallSummary = { model: null, tool: null, stream: false }

/**
 * Judges an answer (docs/content.md#places): a whole one before its first byte goes on, a stream as it passes.
 * Refuses with `content_refused`, and with `plugin_failed` if it cannot be judged.
 */
export async function judgedReply(reply: Reply, judging: ReplyJudging): Promise<Reply> {
  const { facts, place } = judging
  const message = judgedMessage({ ...facts, call: facts.call ?? UNKNOWN }, place)
  let judged = reply
  for (const judge of judging.judges.filter((one) => one.judge.looksAt(place)))
    judged = await judgedBy(judged, judge, message, judging)
  return judged
}

async function judgedBy(
  reply: Reply,
  judge: AnswerJudge,
  message: JudgedMessage,
  judging: ReplyJudging,
): Promise<Reply> {
  const { body = '' } = reply
  if (body === '') return reply
  if (typeof body === 'string' || Buffer.isBuffer(body))
    return wholeReply(reply, Buffer.from(body), judge, message)
  if (/^text\/event-stream\b/i.test(reply.headers?.['content-type'] ?? ''))
    return streamedReply(reply, body, judge, message, judging)
  return wholeReply({ ...reply, body: '' }, await wholeBody(reply, body, judging), judge, message)
}

/** Judges a whole answer. */
async function wholeReply(
  reply: Reply,
  body: Buffer,
  { judge, enforces }: AnswerJudge,
  message: JudgedMessage,
): Promise<Reply> {
  const judged = await judge.judge(body, message)
  const refusal = enforces ? contentRefusal(judged, 'answer') : null
  if (refusal) throw withReport(refusal, reply)
  return { ...reply, body, report: () => withContent(reply.report?.(), judged, enforces) }
}

/** Reads a body to its end, as its caller would have got it. */
async function wholeBody(reply: Reply, streamed: StreamedBody, { facts }: ReplyJudging): Promise<Buffer> {
  const { source, screen, observe, isWhole } = streamed
  const bytes = await collectBytes(source, MAX_WHOLE, facts.held).catch((cause: unknown) => {
    throw cause instanceof Refusal ? cause : withReport(new Refusal('provider_failed', { cause }), reply)
  })
  if (bytes === null) {
    const cause = new Error('the answer is too long to be judged')
    throw withReport(new Refusal('plugin_failed', { cause }), reply)
  }
  const shown = screen ? screen.push(bytes) : bytes
  if (shown === null) throw withReport(new Refusal('provider_failed'), reply)
  const rest = screen?.flush()
  const whole = rest && rest.length > 0 ? Buffer.concat([shown, rest]) : shown
  observe?.(whole)
  isWhole?.(true)
  return whole
}

/** Adds to a refusal what is known of the work: it was done. */
function withReport(
  { reason, message, status, detail, report, cause, final }: Refusal,
  reply: Reply,
): Refusal {
  const { provider, tool, detail: known } = reply.report?.() ?? { detail: {} }
  return new Refusal(reason, {
    ...{ message, status, cause, final },
    detail: { ...detail, ...(provider !== undefined && { provider }), ...(tool !== undefined && { tool }) },
    report: { ...known, ...report },
  })
}

function streamedReply(
  reply: Reply,
  body: StreamedBody,
  { judge, enforces }: AnswerJudge,
  message: JudgedMessage,
  { facts, errorEvent }: ReplyJudging,
): Reply {
  const { isRewritten = false, screen, ...rest } = body
  const stream = new JudgedStream({ judge, message, enforces, held: facts.held })
  const refused = (): Refusal | null =>
    stream.errored instanceof ContentCut ? contentRefusal(stream.errored.judgement, 'answer') : null
  const source = judgedSource(body.source, stream, isRewritten ? screen : undefined)
  return {
    ...reply,
    body: {
      ...rest,
      ...{ source, isRewritten },
      // What looks at the bytes as they came does so after what holds them back.
      ...(screen && !isRewritten && { screen }),
      // What has been translated to its end may not have been told to its end.
      isWhole: (ended) => refused() === null && (body.isWhole ? body.isWhole(ended) : ended),
      brokenOff: () => {
        const refusal = refused()
        return refusal ? errorEvent(refusal) : (body.brokenOff?.() ?? '')
      },
    },
    report: () => {
      const refusal = refused()
      const report = withContent(reply.report?.(), stream.judgement, enforces)
      if (!refusal) return report
      const { reason, cause } = refusal
      return { ...report, failed: true, reason, cause }
    },
  }
}

function withContent(
  report: CallReport = { detail: {} },
  { verdict }: ContentJudgement,
  enforces: boolean,
): CallReport {
  const content: JsonObject = { [enforces ? 'content' : 'content_shadow']: verdict }
  return { ...report, detail: { ...report.detail, ...content } }
}
