import { messageOf } from '../../db/support/error-message.ts'
import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { ThreadPool } from '../../db/support/thread.ts'
import { HolderPlaces } from '../holder-places.ts'
import type { CheckPlugin } from '../operator-files/module.ts'
import type { Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { readBundle } from './bundle.ts'
import { MAX_QUESTIONS, type PolicyEngine } from './engine.ts'
import type { EvaluatorOptions, EvaluatorTasks } from './evaluator.ts'
import { type PolicyFacts, type PolicyInput, policyInput } from './input.ts'
import { opaHttp } from './opa-http.ts'
import { DEFAULT_ENTRYPOINT, type PolicyOptions, type PolicySample } from './options.ts'

type PolicyDecision =
  | { readonly allow: true }
  /** `reason`: for the caller, in the policy's own words; null if it gave none. */
  | { readonly allow: false; readonly reason: string | null }

/** Characters. */
const MAX_REASON_LENGTH = 256

/**
 * Reads a policy's answer. Only `true` and `{allow: true}` allow; `false`, `{allow: false}` and no answer at
 * all (`undefined`) are a plain no. Throws if the answer is anything else: an unknown member could be a
 * condition that nobody here would see to.
 */
export function readDecision(answer: unknown): PolicyDecision {
  if (answer === true) return { allow: true }
  if (answer === false || answer === undefined) return { allow: false, reason: null }
  const { allow, reason, ...rest } = members(answer)
  const [strange] = Object.keys(rest)
  if (strange !== undefined) {
    throw new Error(
      `the policy answered with the member ${JSON.stringify(strange.slice(0, 128))}; only allow and reason are known`,
    )
  }
  if (typeof allow !== 'boolean')
    throw new Error('the policy answered with an object whose allow is no boolean')
  if (reason !== undefined && typeof reason !== 'string') {
    throw new Error('the policy answered with a reason that is no string')
  }
  return allow ? { allow } : { allow, reason: reason === undefined ? null : printable(reason) }
}

function members(answer: unknown): UnknownRecord {
  if (isObject(answer)) return answer
  const kind = Array.isArray(answer) ? 'a list' : answer === null ? 'null' : `a ${typeof answer}`
  throw new Error(`the policy answered with ${kind}, neither a boolean nor {allow, reason}`)
}

/** Makes a reason printable: it may quote the caller, and must not steer a terminal or hide from a reader. */
function printable(reason: string): string | null {
  const seen = reason.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '').trim()
  return Array.from(seen).slice(0, MAX_REASON_LENGTH).join('') || null
}

export interface LoadedPolicy {
  readonly check: CheckPlugin
  /** Hex SHA-256 of the compiled policy and its data; null if they are not ours to see. */
  readonly digest: string | null
  readonly close: () => Promise<void>
}

/** A page of a policy's memory, and the bound of all. Bytes. */
const PAGE = 65_536
const MAX_MEMORY_BYTES = 256 * 1_048_576
/** Questions under way at once: of one principal, and of all. */
const MAX_ASKED = { own: MAX_QUESTIONS / 4, all: MAX_QUESTIONS }
/** The time that a compiled policy may take until it can be asked. ms. */
const START_MS = 10_000

/**
 * Opens the organisation's own policy (docs/decisions/018-own-checks-only-refuse.md) and tries its samples.
 * Paths of `options` are relative to `directory`. Throws an Error with one sentence if it cannot be used, or
 * a sample is answered otherwise.
 */
export async function openPolicy(options: PolicyOptions, directory: string): Promise<LoadedPolicy> {
  const { engine, digest } = await openEngine(options, directory)
  try {
    await trySamples(engine, options.samples)
  } catch (error) {
    await engine.close()
    throw error
  }
  return { check: policy(engine, options.arguments), digest, close: engine.close }
}

/**
 * Asks an engine about the call, after the gate: it can only refuse. Refuses with `policy_denied` and the
 * policy's own reason; if the policy fails, with `plugin_failed`; if too many questions are under way, of
 * this principal or of all, with `overloaded`.
 */
export function policy(engine: PolicyEngine, mode: PolicyOptions['arguments']): Plugin<PolicyFacts, object> {
  const places = new HolderPlaces(MAX_ASKED)
  return {
    name: 'policy',
    admit: async (facts) => {
      const input = policyInput(facts, mode)
      const leave = placeIn(places, input.principal.id)
      try {
        const decision = await decide(engine, input)
        if (!decision.allow) throw denied(decision.reason)
        return {}
      } finally {
        leave()
      }
    },
  }
}

function placeIn(places: HolderPlaces, holder: string): () => void {
  const place = places.acquire(holder)
  if (place.taken) return place.taken
  const message = `${place.held} ${place.limit === 'own' ? 'of your ' : ''}calls are waiting for the policy. Try again when one is done.`
  throw new Refusal('overloaded', { message, headers: { 'retry-after': '1' } })
}

async function decide(engine: PolicyEngine, input: PolicyInput): Promise<PolicyDecision> {
  try {
    return readDecision(await engine.evaluate(JSON.stringify(input)))
  } catch (error) {
    // Any error, also a Refusal from deep inside: it says nothing about the caller.
    throw new Refusal('plugin_failed', { cause: error })
  }
}

function denied(reason: string | null): Refusal {
  return reason === null
    ? new Refusal('policy_denied')
    : new Refusal('policy_denied', { message: reason, detail: { policy: reason } })
}

async function openEngine(
  options: PolicyOptions,
  directory: string,
): Promise<{ engine: PolicyEngine; digest: string | null }> {
  const { url, token, bundle: path, data, entrypoint = DEFAULT_ENTRYPOINT, deadline_ms: deadlineMs } = options
  if (options.engine === 'opa-http') {
    if (url === undefined) throw new Error('url is missing')
    return { engine: opaHttp({ url, token, deadlineMs }), digest: null }
  }
  if (path === undefined) throw new Error('bundle is missing')
  const { wasm, data: found, digest } = await readBundle({ bundle: path, data, directory })
  // The memory that a module declares for itself cannot be looked up; its own data count in its length.
  const initialPages = Math.ceil(wasm.length / PAGE) + 16
  const maximumPages = MAX_MEMORY_BYTES / PAGE
  try {
    const start = { wasm, data: found, entrypoint, initialPages, maximumPages }
    return { engine: await startEvaluator(start, { deadlineMs, startMs: START_MS }), digest }
  } catch (error) {
    throw new Error(`${path} cannot be used: ${messageOf(error)}`, { cause: error })
  }
}

/** Tries every sample. Reports all wrong answers at once. */
async function trySamples(engine: PolicyEngine, samples: readonly PolicySample[]): Promise<void> {
  const wrong: string[] = []
  for (const [index, { input, allow }] of samples.entries()) {
    const decision = await decideSample(engine, input, index)
    if (decision.allow !== allow) wrong.push(`samples[${index}] ${wrongAnswerText(decision)}`)
  }
  if (wrong.length > 0)
    throw new Error(`the policy does not decide as its samples expect: ${wrong.join('; ')}`)
}

async function decideSample(
  engine: PolicyEngine,
  input: PolicyInput,
  index: number,
): Promise<PolicyDecision> {
  try {
    return readDecision(await engine.evaluate(JSON.stringify(input)))
  } catch (error) {
    throw new Error(`samples[${index}] cannot be tried: ${messageOf(error)}`, { cause: error })
  }
}

function wrongAnswerText(decision: PolicyDecision): string {
  if (decision.allow) return 'is allowed but should be refused'
  return `is refused${decision.reason === null ? '' : ` (${decision.reason})`} but should be allowed`
}

interface EvaluatorLimits {
  /** The time from the question to its answer, waiting included. ms. */
  readonly deadlineMs: number
  /** The time that a started thread may take until it is ready. ms. */
  readonly startMs: number
}

/** The bound of the thread's own heap. The policy's memory is bounded by `maximumPages`. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 }

/**
 * Runs a compiled policy in a thread of its own and ends the thread with a question that is late: WebAssembly
 * cannot be interrupted otherwise. Then another is started at once, and the other questions go on waiting.
 * Rejects with one sentence if the policy cannot be used.
 */
export async function startEvaluator(
  options: EvaluatorOptions,
  { deadlineMs, startMs }: EvaluatorLimits,
): Promise<PolicyEngine> {
  const pool = new ThreadPool<EvaluatorTasks>(import.meta, './evaluator', {
    name: 'the policy',
    data: options,
    isWarm: true,
    startMs,
    waitMs: deadlineMs,
    maxWaiting: MAX_QUESTIONS,
    overloaded: () => new Error('too many calls wait for the policy'),
    // A policy sees nothing of this process: no environment, and its prints do not become lines of our log.
    // Nobody reads them: a reader would keep the process alive.
    worker: { resourceLimits: RESOURCE_LIMITS, env: {}, execArgv: [], stdout: true, stderr: true },
  })
  await pool.start()
  return {
    evaluate: async (input) => {
      const answer = await pool.ask('evaluate', input)
      return answer === null ? undefined : JSON.parse(answer)
    },
    close: () => pool.close(),
  }
}
