import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { JsonObject } from '../../db/support/json.ts'
import { ThreadPool } from '../../db/support/thread.ts'
import type { HangupSignal } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { runPromptly } from '../turns.ts'
import { BeginningSearch } from './beginnings.ts'
import type { JudgingOptions, JudgingTasks } from './judging.ts'
import type { ContentOptions } from './options.ts'
import { OWN_PATTERNS } from './own-rules.ts'
import { RECOMMENDED_RULES, rulesNamed, type SecretRule } from './rules.ts'
import { type ContentService, contentService } from './service.ts'
import type { ContentFinding, ContentPlace, ContentVerdict } from './verdict.ts'

/** A message as it is judged. */
export interface JudgedMessage {
  readonly place: ContentPlace
  /** False: a text, or events, in which the strings are not looked for. */
  readonly isJson: boolean
  readonly requestId: string
  readonly principal: { readonly id: string; readonly type: string }
  readonly client: unknown
  readonly model: string | null
  readonly tool: string | null
  readonly hangup: HangupSignal
}

/** A verdict, with what the caller and the log are told. */
export interface ContentJudgement {
  readonly verdict: ContentVerdict
  /** A service's own words; null: it has none. */
  readonly reason: string | null
  readonly cause?: unknown
}

/** Judges content by the rules and services of one file. Never rejects but with `overloaded` and a hangup's reason. */
export interface ContentJudge {
  readonly looksAt: (place: ContentPlace) => boolean
  readonly judge: (text: Buffer, message: JudgedMessage) => ContentJudgement | Promise<ContentJudgement>
  /** The rules for the pieces of a stream; none: its place is not looked at by rules. */
  readonly streamRules: (place: ContentPlace) => readonly SecretRule[]
  /** The most characters of a stream that a service judges, which it does as a whole; null: no service does. */
  readonly maxWhole: (place: ContentPlace) => number | null
  /** Judges JSON, or a text that has JSON in it, by rules alone. */
  readonly judgeByRules: (
    text: Buffer,
    message: JudgedMessage,
  ) => ContentJudgement | Promise<ContentJudgement>
  /** Judges a piece of a text by rules alone. */
  readonly judgePiece: (text: string) => Promise<ContentJudgement>
  /** Names rules and services, for the row `config.loaded`. */
  readonly about: JsonObject
  readonly digest: string
  readonly close: () => Promise<void>
}

/** The time that a thread may take to start, and a text to be judged, once it is its turn. ms. */
const START_MS = 10_000
const WORK_MS = 4_000
const WAIT_MS = 8_000
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 768, stackSizeMb: 4 }

const judgingThreads = (data: JudgingOptions, workMs: number): ThreadPool<JudgingTasks> =>
  new ThreadPool<JudgingTasks>(import.meta, './judging', {
    name: 'the check of content',
    data,
    isWarm: true,
    startMs: START_MS,
    waitMs: WAIT_MS,
    workMs,
    maxWaiting: 256,
    // It sees nothing of this process's environment, and has no business with it.
    worker: { env: {}, execArgv: [], resourceLimits: RESOURCE_LIMITS },
    overloaded: () => new Refusal('overloaded', { headers: { 'retry-after': '1' } }),
  })

/**
 * Opens the judge of a file. Throws an Error with one sentence if its rules cannot be used. `workMs`: the time that
 * the rules may take for one text.
 */
export async function openContentJudge(
  { secrets, checks }: ContentOptions,
  workMs = WORK_MS,
): Promise<ContentJudge> {
  const named = secrets.rules === 'recommended' ? RECOMMENDED_RULES : rulesNamed(secrets.rules)
  const rules = named.filter(({ name }) => !secrets.off.includes(name))
  const names = rules.map(({ name }) => name)
  const digest = await rulesDigest(names)
  const threads = judgingThreads({ rules: names, allow: secrets.allow }, workMs)
  await threads.start()
  return new RuleJudge({ secrets, rules, digest, threads, services: checks.map(contentService) })
}

/** Digests all that rules are made of: the preset's code, our patterns, and the names that are on. */
async function rulesDigest(names: readonly string[]): Promise<string> {
  const preset = fileURLToPath(import.meta.resolve('@secretlint/secretlint-rule-preset-recommend'))
  const own = Object.entries(OWN_PATTERNS).map(([name, pattern]) => [name, pattern.source])
  return createHash('sha256')
    .update(await readFile(preset))
    .update(JSON.stringify([own, names]))
    .digest('hex')
}

interface RuleJudgeMeans {
  readonly secrets: ContentOptions['secrets']
  readonly rules: readonly SecretRule[]
  readonly digest: string
  readonly threads: ThreadPool<JudgingTasks>
  readonly services: readonly ContentService[]
}

class RuleJudge implements ContentJudge {
  readonly #means: RuleJudgeMeans
  readonly #search: BeginningSearch
  readonly about: JsonObject
  readonly digest: string

  constructor(means: RuleJudgeMeans) {
    const { rules, digest, services } = means
    this.#means = means
    this.#search = new BeginningSearch(rules)
    this.digest = digest
    this.about = {
      rules: rules.map(({ name }) => name),
      services: services.map(({ name, url, where }) => ({ name, url, where: [...where] })),
    }
  }

  looksAt(place: ContentPlace): boolean {
    return this.#means.secrets.where.includes(place) || this.#servicesOf(place).length > 0
  }

  streamRules(place: ContentPlace): readonly SecretRule[] {
    return this.#means.secrets.where.includes(place) ? this.#means.rules : []
  }

  maxWhole(place: ContentPlace): number | null {
    const asked = this.#servicesOf(place)
    return asked.length === 0 ? null : Math.min(...asked.map(({ maxText }) => maxText))
  }

  judge(text: Buffer, message: JudgedMessage): ContentJudgement | Promise<ContentJudgement> {
    return this.#judgeBy(text, message, this.#servicesOf(message.place))
  }

  judgeByRules(text: Buffer, message: JudgedMessage): ContentJudgement | Promise<ContentJudgement> {
    return this.#judgeBy(text, message, [])
  }

  #servicesOf(place: ContentPlace): readonly ContentService[] {
    return this.#means.services.filter(({ where }) => where.includes(place))
  }

  #judgeBy(
    text: Buffer,
    message: JudgedMessage,
    asked: readonly ContentService[],
  ): ContentJudgement | Promise<ContentJudgement> {
    const { secrets } = this.#means
    const hit = secrets.where.includes(message.place)
      ? runPromptly(this.#search.steps(text), message.hangup)
      : false
    if (hit === false && asked.length === 0) return this.#passed([])
    return this.#judge(text, message, hit, asked)
  }

  async #judge(
    text: Buffer,
    message: JudgedMessage,
    hit: boolean | Promise<boolean>,
    asked: readonly ContentService[],
  ): Promise<ContentJudgement> {
    try {
      // A copy: what crosses to a thread is all of the memory that bytes are part of.
      const bytes = (): Uint8Array => Uint8Array.prototype.slice.call(text)
      const found = (await hit)
        ? await this.#means.threads.ask('judge', { text: bytes(), isJson: message.isJson }, askerOf(message))
        : []
      const judged = this.#ofRules(found)
      if (judged.verdict.verdict !== 'pass') return judged
      return await this.#askServices(asked, text, bytes, message, found)
    } catch (error) {
      if (error instanceof Refusal || message.hangup.gone) throw error
      return this.#failed(error)
    }
  }

  async #askServices(
    asked: readonly ContentService[],
    text: Buffer,
    bytes: () => Uint8Array,
    message: JudgedMessage,
    found: readonly ContentFinding[],
  ): Promise<ContentJudgement> {
    const findings = [...found]
    for (const service of asked) {
      const { name, maxText: max, action } = service
      const texts = message.isJson
        ? await this.#means.threads.ask('texts', { text: bytes(), max }, askerOf(message))
        : text.length <= max
          ? [text.toString()]
          : null
      if (texts === null) throw new Error(`there is more text than the service ${name} is sent (max_kib)`)
      const { place: where, requestId: request_id, principal, client, model, tool } = message
      const question = { version: 1, where, request_id, principal, client, model, tool, texts } as const
      const { allow, reason, rules } = await service.ask(question, text)
      if (allow) continue
      const own = (rules.length === 0 ? [name] : rules).map((rule) => ({ rule, where: name, count: 1 }))
      findings.push(...own)
      if (action === 'refuse') return { verdict: this.#verdict('refuse', findings), reason }
    }
    return this.#passed(findings)
  }

  async judgePiece(text: string): Promise<ContentJudgement> {
    try {
      return this.#ofRules(await this.#means.threads.ask('judge', { text, isJson: false }))
    } catch (error) {
      return this.#failed(error)
    }
  }

  close(): Promise<void> {
    return this.#means.threads.close()
  }

  #ofRules(findings: readonly ContentFinding[]): ContentJudgement {
    const refuses = this.#means.secrets.action === 'refuse' && findings.length > 0
    return { verdict: this.#verdict(refuses ? 'refuse' : 'pass', findings), reason: null }
  }

  #passed(findings: readonly ContentFinding[]): ContentJudgement {
    return { verdict: this.#verdict('pass', findings), reason: null }
  }

  #failed(cause: unknown): ContentJudgement {
    return { verdict: this.#verdict('failed', []), reason: null, cause }
  }

  #verdict(verdict: ContentVerdict['verdict'], findings: readonly ContentFinding[]): ContentVerdict {
    return { rules_digest: this.#means.digest, verdict, findings }
  }
}

const askerOf = ({ principal, hangup }: JudgedMessage) => ({ key: principal.id, signal: hangup.signal })
