import { createHmac } from 'node:crypto'
import { ThreadPool } from '../../../db/support/thread.ts'
import { peakReservation } from '../../../plugins/collect.ts'
import type { CallCommitments } from '../../../plugins/facts.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { ApiWire } from '../dialects/dialect.ts'
import { type LlmProvider, translatedBy } from '../options.ts'
import { AnswerTranslator } from './answer.ts'
import { LOSS_NAMES, type TranslationFault } from './losses.ts'
import type { TargetModel } from './model/target.ts'
import { ToolNames } from './names.ts'
import { type TranslationInput, translateRequest } from './plan.ts'
import { quirksOf } from './quirks.ts'
import { ReasoningSeal } from './seal.ts'
import type { TranslationTasks } from './worker.ts'

/** The longest body that is translated on the thread that serves, which takes 5 ms at worst. Bytes. */
const MAX_HERE = 64 * 1024
/** Bytes. A longer one is not translated. */
const MAX_TOLD_BODY = 16 * 1024 * 1024

/** A granted call that is told in another wire than its own. */
export interface ToldCall {
  readonly from: ApiWire
  readonly body: Buffer
  /** True: its tokens are to be counted, and no more. */
  readonly isCount: boolean
  /** The id of the request, which ids of its answer are made of. */
  readonly id: string
  /** The session that the caller names; null: none. */
  readonly session: string | null
  /** The caller's own name of the model. */
  readonly model: string
  /** ms since the epoch. */
  readonly at: number
  /** One principal has one thread at a time. */
  readonly principalId: string
  readonly commitments: Pick<CallCommitments, 'derived'>
  readonly held: Pick<MemoryReservation, 'reserveAnswerInTurn' | 'tryReserve'>
  readonly signal: AbortSignal
}

export interface ToldTarget {
  readonly provider: LlmProvider
  readonly model: string
  /** The name by which it was found. */
  readonly alias: string | null
  /** The wire that it is asked in. */
  readonly wire: ApiWire
}

/** A call as it is told, and the translator of its answer. */
export interface ToldRequest {
  readonly from: ApiWire
  readonly to: ApiWire
  readonly body: Buffer
  readonly isCount: boolean
  /** The names of what is left out, and of what is told in another form, sorted. */
  readonly dropped: readonly string[]
  readonly carried: readonly string[]
  readonly answer: AnswerTranslator
}

const threads = new ThreadPool<TranslationTasks>(import.meta, './worker', {
  name: 'the translation of calls',
  maxThreads: 2,
  idleMs: 60_000,
  startMs: 10_000,
  waitMs: 20_000,
  workMs: 10_000,
  maxWaiting: 128,
  // It sees nothing of this process's environment, and has no business with it.
  worker: { env: {}, execArgv: [], resourceLimits: { maxOldGenerationSizeMb: 768 } },
  overloaded: () => new Refusal('overloaded', { headers: { 'retry-after': '1' } }),
})

/**
 * Translates a call for a provider: a long one on a thread. Refuses with `translation_lossy` what the provider cannot
 * be told, with `body_too_large` more than 16 MiB, and with `overloaded`.
 */
export async function tellCall(call: ToldCall, to: ToldTarget): Promise<ToldRequest> {
  const { from, body, isCount, principalId, signal, held } = call
  if (body.length > MAX_TOLD_BODY) throw tooLarge()
  const sealKey = call.commitments.derived('reasoning of models')
  const target = { ...targetModel(to), cacheKey: cacheKeyOf(call) }
  const input: TranslationInput = { from, body, isCount, sealKey, target }
  const result =
    body.length <= MAX_HERE
      ? translateRequest(input)
      : await threads.ask('translate', input, { key: principalId, signal })
  if (result.faults) throw lossyRefusal(to.model, result.faults)
  const told = Buffer.from(result.body.buffer, result.body.byteOffset, result.body.length)
  await held.reserveAnswerInTurn(told.length)
  const seal = new ReasoningSeal(sealKey)
  const { isStream, wantsUsage, stopWords, toldStopWords } = result
  const names = new ToolNames(result.tools)
  const answer = new AnswerTranslator(
    { from: to.wire, to: from },
    {
      reading: {
        seal: (blocks) => seal.seal({ provider: target.provider, wire: to.wire, blocks }),
        stopWords: toldStopWords,
      },
      writing: {
        ...{ id: call.id.replace(/^req_/, ''), model: call.model, now: call.at },
        ...{ names, isStream, includeUsage: wantsUsage, showReasoning: target.showReasoning },
      },
      stopWords,
      fits: peakReservation(held),
    },
  )
  const { dropped, carried } = result
  return { from, to: to.wire, body: told, isCount, dropped, carried, answer }
}

/** Names a session to a provider's cache of prompts, by a name that says nothing of it to anybody else. */
const cacheKeyOf = ({ session, commitments }: ToldCall): string | null =>
  session && createHmac('sha256', commitments.derived('cache of prompts')).update(session).digest('base64url')

const tooLarge = (): Refusal =>
  new Refusal('body_too_large', {
    message: 'The body is larger than a call may be that is translated: 16 MiB. Send less.',
  })

/** Makes the target that a provider is, by its settings and those of the alias, for a caller without a session. */
export function targetModel({ provider, model, alias, wire }: ToldTarget): TargetModel {
  const { accepted, drop } = translatedBy(provider, alias)
  const quirks = quirksOf(wire === 'messages' ? 'anthropic' : (provider.server ?? 'openai'), provider.quirks)
  return {
    ...{ wire, model, provider: provider.name, thinking: provider.thinking },
    drop,
    accepted: new Set(accepted),
    maxOutputTokens: provider.max_output_tokens,
    isCached: provider.cache === 'auto',
    cacheKey: null,
    showReasoning: provider.show_reasoning,
    laterSystem: quirks.later_system,
    maxTokensMember: quirks.max_tokens,
    reasoningMember: quirks.reasoning,
    replaysReasoning: quirks.replay_reasoning,
    usageInStream: quirks.usage_in_stream,
    takesTopK: quirks.top_k,
    statesStopWord: quirks.stop_word,
    takesNamedChoice: quirks.named_choice,
  }
}

function lossyRefusal(model: string, faults: readonly TranslationFault[]): Refusal {
  const [first] = faults
  const advice = first ? adviceOn(first.loss) : ''
  const errors = faults.map(({ field, loss }) => ({
    ...{ field, loss },
    message: `${model} cannot be told of ${field || 'this body'}.`,
  }))
  return new Refusal('translation_lossy', {
    message: `${model} cannot be told of ${first?.field || 'this body'} (${first?.loss}). ${advice}`,
    detail: { errors },
    report: { losses: [...new Set(faults.map(({ loss }) => loss))].toSorted() },
  })
}

function adviceOn(loss: TranslationFault['loss']): string {
  if (loss === 'provider_state')
    return 'Its provider keeps nothing of other calls: send the whole conversation, with store: false.'
  const isLoss = LOSS_NAMES.some((name) => name === loss)
  return isLoss ? 'Leave it out, or ask an operator to accept that loss.' : 'Leave it out.'
}
