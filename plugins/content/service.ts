import { createHash } from 'node:crypto'
import { z } from 'zod'
import { scanJson } from '../json-body/scan.ts'
import { judgeClient } from '../policy/judge-client.ts'
import type { ContentServiceOptions } from './options.ts'
import type { ContentPlace } from './verdict.ts'

/** The question to a service, as JSON (docs/content.md#service). A member changes only with `version`. */
export interface ServiceQuestion {
  readonly version: 1
  readonly where: ContentPlace
  readonly request_id: string
  readonly principal: { readonly id: string; readonly type: string }
  /** The client of a person's grant; null: a certificate was shown. */
  readonly client: unknown
  readonly model: string | null
  readonly tool: string | null
  readonly texts: readonly string[]
  /** Lower-case hex, of the message as it was judged. */
  readonly sha256: string
}

export interface ServiceAnswer {
  readonly allow: boolean
  /** For the caller. */
  readonly reason: string | null
  readonly rules: readonly string[]
}

export interface ContentService extends Pick<ContentServiceOptions, 'name' | 'where' | 'action' | 'url'> {
  /** Characters. */
  readonly maxText: number
  /** Rejects with an Error unless there is a sound answer in time. */
  readonly ask: (question: Omit<ServiceQuestion, 'sha256'>, judged: Buffer) => Promise<ServiceAnswer>
}

/** Bytes. */
const MAX_ANSWER = 65_536
/** Questions under way at once. */
const MAX_QUESTIONS = 256

const answerShape = z.strictObject({
  allow: z.boolean(),
  reason: z.string().max(4096).optional(),
  findings: z
    .array(z.strictObject({ rule: z.string().regex(/^[A-Za-z0-9_.-]{1,64}$/) }))
    .max(32)
    .optional(),
})

/** Makes the client of an organisation's own service. */
export function contentService(options: ContentServiceOptions): ContentService {
  const { name, url, where, action, token, deadline_ms: deadlineMs, max_kib: maxKib } = options
  const ask = judgeClient({
    ...{ url, token, deadlineMs, who: `the service ${name}` },
    ...{ maxAnswerBytes: MAX_ANSWER, maxQuestions: MAX_QUESTIONS },
    read: readAnswer,
    failure: (cause) => new Error(`no verdict of the service ${name}`, { cause }),
  })
  return {
    ...{ name, url, where, action, maxText: maxKib * 1024 },
    ask: (question, judged) =>
      ask(() => {
        const sha256 = createHash('sha256').update(judged).digest('hex')
        return JSON.stringify({ ...question, sha256 })
      }),
  }
}

/** Reads an answer. Throws if it is anything else: an unknown member could be a condition that nobody sees to. */
export function readAnswer(bytes: Buffer): ServiceAnswer {
  // Two members named allow would be two answers.
  const parsed = answerShape.safeParse(scanJson(bytes).value)
  if (!parsed.success) throw new Error('its answer is not {allow, reason, findings}')
  const { allow, reason = '', findings = [] } = parsed.data
  const seen = reason.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '').trim()
  return { allow, reason: seen.slice(0, 256) || null, rules: findings.map(({ rule }) => rule) }
}
