import { createHash } from 'node:crypto'
import { Agent, request } from 'undici'
import { z } from 'zod'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { collectBytes } from '../collect.ts'
import { scanJson } from '../json-body/scan.ts'
import { MIN_TRACED_CHARACTERS, quotesSecret, secretTraces } from '../secrets/traces.ts'
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
/** Connections to one service. */
const CONNECTIONS = 64
/** Questions under way at once. */
const MAX_QUESTIONS = 256
/** Idle connections end by themselves after so long, which is all that closing has to do. ms. */
const IDLE_MS = 10_000

const answerShape = z.strictObject({
  allow: z.boolean(),
  reason: z.string().max(4096).optional(),
  findings: z
    .array(z.strictObject({ rule: z.string().regex(/^[A-Za-z0-9_.-]{1,64}$/) }))
    .max(32)
    .optional(),
})

/**
 * Makes the client of an organisation's own service. Redirects are not followed, TLS is always verified. Does NOT go
 * through a proxy of the environment.
 */
export function contentService(options: ContentServiceOptions): ContentService {
  const { name, url, where, action, token, deadline_ms: deadlineMs, max_kib: maxKib } = options
  const agent = new Agent({
    connections: CONNECTIONS,
    allowH2: false,
    keepAliveTimeout: IDLE_MS,
    keepAliveMaxTimeout: IDLE_MS,
    maxResponseSize: MAX_ANSWER,
    connect: { rejectUnauthorized: true, timeout: deadlineMs, lookup: new HostNameCache().lookup },
  })
  const headers = {
    'content-type': 'application/json',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  }
  const traces = secretTraces(token !== undefined && token.length >= MIN_TRACED_CHARACTERS ? [token] : [])
  let underWay = 0

  async function asked(body: string): Promise<ServiceAnswer> {
    const signal = AbortSignal.timeout(deadlineMs)
    const answer = await request(url, { method: 'POST', dispatcher: agent, headers, body, signal })
    if (answer.statusCode !== 200) {
      // Unread: its end, or its breaking off, says nothing more.
      answer.body.on('error', () => {}).destroy()
      throw new Error(`it answered ${answer.statusCode}`)
    }
    const bytes = await collectBytes(answer.body, MAX_ANSWER)
    if (bytes === null) throw new Error('its answer is too large')
    if (quotesSecret(traces, bytes)) throw new Error('its answer quotes its token')
    return readAnswer(bytes)
  }

  return {
    ...{ name, url, where, action, maxText: maxKib * 1024 },
    ask: async (question, judged) => {
      if (underWay >= MAX_QUESTIONS) throw new Error(`too many questions wait for the service ${name}`)
      underWay += 1
      try {
        const sha256 = createHash('sha256').update(judged).digest('hex')
        return await asked(JSON.stringify({ ...question, sha256 }))
      } catch (cause) {
        throw new Error(`no verdict of the service ${name}`, { cause })
      } finally {
        underWay -= 1
      }
    },
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
