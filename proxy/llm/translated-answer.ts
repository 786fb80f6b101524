import { isObject } from '../../db/support/json.ts'
import {
  isReadableText,
  quotesUnbroken,
  SecretScreen,
  type SecretTraces,
} from '../../plugins/secrets/traces.ts'
import type { ErrorWords } from '../egress/error-words.ts'
import type { AnswerScreen, CallReport, Reply, ScreenLine } from '../http/reply.ts'
import { type AnswerTap, answerTap } from './dialects/answer-tap.ts'
import { type ApiWire, DIALECT_BY_NAME, DIALECT_OF_WIRE } from './dialects/registry.ts'
import { parseOrNothing } from './dialects/statements.ts'
import type { LlmDependencies, LlmFacts } from './llm-call.ts'
import { judgedReport } from './passed-answer.ts'
import { failureOfError, type ProviderFailure, unusableAnswer } from './refusals.ts'
import {
  failedOf,
  type PassedCall,
  type ProviderAnswer,
  refuseQuoted,
  refuseWith,
  secretQuotedError,
} from './refused-answer.ts'
import type { AnswerTranslator } from './translate/answer.ts'
import type { ToldRequest } from './translate/call.ts'
import { CONTEXT_FULL, FULL_SENTENCE, saysContextFull } from './translate/ends.ts'
import { AnswerTimers } from './translate/timers.ts'
import { readWholeBody } from './upstream/answer.ts'
import { isEventStream, responseHeaders } from './upstream/headers.ts'
import { readProviderWords } from './upstream/words.ts'

/** Bytes. A longer answer that is no stream is not translated. */
const MAX_TOLD_ANSWER = 2 * 1024 * 1024

/** An answer that is told in the caller's wire. */
type ToldAnswer = Pick<Reply, 'headers' | 'body'> & {
  /** The failure of an answer that has begun; null: it has none. */
  readonly failure: () => Error | null
}

/** Passes on the answer of a translated request, in the caller's wire. */
export async function tellOn(
  answered: ProviderAnswer & { readonly told: ToldRequest },
  facts: LlmFacts,
  means: LlmDependencies,
): Promise<Reply> {
  const { target, answer, told } = answered
  const { status, headers: stated } = answer
  if (status >= 300) return refuseWith(failureOfRefusal(answered, means.secrets), answered)
  const { usage, outcome } = DIALECT_BY_NAME[DIALECT_OF_WIRE[told.to]]
  const tap = answerTap(
    { usage, outcome },
    stated['content-type'] ?? '',
    stated['content-encoding'],
    facts.held,
  )
  const { headers, body, failure } = await tellAnswer(answered, facts, tap)
  const report = (): CallReport => {
    const cause = failure()
    const judged = judgedReport(answered, tap.read(tap.isWhole(true)), facts, means)
    return { ...judged, ...(cause && { failed: true, reason: 'provider_failed', cause }) }
  }
  return {
    status,
    headers: {
      ...responseHeaders(stated, target.headers.returns),
      ...headers,
      'x-sallyport-translated': translationHeader(told),
    },
    ...(body !== undefined && { body }),
    report,
  }
}

/** Says what was left out and told otherwise: `messages>responses; dropped=cache,user; carried=is_error`. */
function translationHeader({ from, to, dropped, carried }: ToldRequest): string {
  const lists = [
    ['dropped', dropped],
    ['carried', carried],
  ] as const
  const said = lists.filter(([, names]) => names.length > 0).map(([name, names]) => `${name}=${names.join()}`)
  return [`${from}>${to}`, ...said].join('; ')
}

/**
 * Tells a provider's answer in the caller's wire: a stream as it comes, another one whole. `tap`: observes what the
 * provider sent. Refuses with `provider_failed` one that cannot be told.
 */
async function tellAnswer(
  answered: ProviderAnswer & { readonly told: ToldRequest },
  { held }: PassedCall,
  tap: Pick<AnswerTap, 'observe'>,
): Promise<ToldAnswer> {
  const { answer, target, told } = answered
  const { traces } = target.headers
  const isEvents = isEventStream(answer.headers)
  if (isEvents !== told.answer.isStream)
    return refuseWith(unusableAnswer(failedOf(answered), OTHER_KIND), answered)
  if (isEvents && !Buffer.isBuffer(answer.body)) {
    const screen = new ToldScreen(told.answer, traces, tap)
    return {
      headers: { 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no' },
      body: {
        source: answer.body,
        screen,
        isRewritten: true,
        isWhole: () => told.answer.isWhole,
        brokenOff: () => told.answer.breakOff(),
      },
      failure: () => screen.failure(),
    }
  }
  const body = await readWholeBody(answer, MAX_TOLD_ANSWER, held).catch((error: unknown) =>
    refuseWith(failureOfError(error, target.provider), answered),
  )
  if (body === null) return refuseWith(unusableAnswer(failedOf(answered), TOO_LONG), answered)
  if (!isReadableText(body, true) || quotesUnbroken(traces, body)) return refuseQuoted(answered)
  tap.observe(body)
  const document = told.isCount ? toldCount(body) : told.answer.document(body)
  if (document === null) {
    const cause = new Error(told.answer.broken ?? 'the answer has no end')
    return refuseWith(unusableAnswer(failedOf(answered), { ...UNTELLABLE, cause }), answered)
  }
  return { headers: { 'content-type': 'application/json' }, body: document, failure: () => null }
}

/** Tells how many tokens a request has; null: the provider has not said it. */
function toldCount(body: Buffer): Buffer | null {
  const counted = parseOrNothing(body.toString())
  const { input_tokens: count } = isObject(counted) ? counted : {}
  return Number.isSafeInteger(count) ? Buffer.from(JSON.stringify({ input_tokens: count })) : null
}

const OTHER_KIND = {
  message: 'The provider answered with another kind of answer than was asked for. Tell the operator.',
}
const TOO_LONG = { message: 'The answer of the provider is too long to be translated. Ask for a stream.' }
const UNTELLABLE = {
  message: 'The answer of the provider cannot be translated: it is not whole, or not of its API.',
}

/** Translates a stream as it passes. Ends it if its provider does not, and as soon as it is broken. */
class ToldScreen implements AnswerScreen {
  readonly #answer: AnswerTranslator
  readonly #screen: SecretScreen | null
  readonly #tap: Pick<AnswerTap, 'observe'>
  #timers: AnswerTimers | null = null
  #line: ScreenLine | null = null

  constructor(answer: AnswerTranslator, traces: SecretTraces, tap: Pick<AnswerTap, 'observe'>) {
    this.#answer = answer
    this.#screen = traces.length > 0 ? new SecretScreen(traces) : null
    this.#tap = tap
  }

  push(chunk: Buffer): Buffer | null {
    this.#tap.observe(chunk)
    const shown = this.#screen ? this.#screen.push(chunk) : chunk
    if (shown === null) return null
    const told = this.#answer.push(shown)
    if (told.length > 0) this.#timers?.wrote()
    if (this.#answer.broken !== null) return this.#break(told)
    if (this.#answer.isEnding) this.#timers?.endSoon()
    return told
  }

  begin(line: ScreenLine): () => void {
    const timers = new AnswerTimers({
      ping: () => line.write(this.#answer.ping()),
      end: () => {
        line.write(this.flush())
        line.end()
      },
    })
    this.#timers = timers
    this.#line = line
    return () => timers.stop()
  }

  /** Writes the last that the caller gets, the event of an error, and has the connection cut. */
  #break(told: Buffer): Buffer {
    this.#line?.write(told)
    this.#line?.end()
    return NOTHING
  }

  flush(): Buffer {
    const rest = this.#screen?.flush()
    const told = rest && rest.length > 0 ? this.#answer.push(rest) : NOTHING
    return Buffer.concat([told, this.#answer.flush()])
  }

  failure(): Error | null {
    if (this.#screen?.quoted) return secretQuotedError()
    return this.#answer.broken === null ? null : new Error(`the answer is broken: ${this.#answer.broken}`)
  }
}

const NOTHING = Buffer.alloc(0)

/** The failure that a provider's own refusal of a translated request is: in our one body, with its words. */
function failureOfRefusal(
  answered: ProviderAnswer & { readonly told: ToldRequest },
  secrets: SecretTraces,
): ProviderFailure {
  const { answer, told } = answered
  const words = readProviderWords(answer, secrets).then((said) => said && wordsToClient(said, told.from))
  return { ...failedOf(answered), reason: 'provider_refused', words }
}

/** Says of a context that is full what clients of the wire know it by: its code, or a sentence of Anthropic's. */
function wordsToClient(said: ErrorWords, wire: ApiWire): ErrorWords {
  if (!saysContextFull(said)) return said
  const isKnown = wire !== 'messages' || said.message.startsWith(FULL_SENTENCE)
  return {
    ...said,
    code: CONTEXT_FULL,
    message: isKnown ? said.message : `${FULL_SENTENCE}: ${said.message}`,
  }
}
