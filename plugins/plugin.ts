import type { Arrival, CallSettlement, Receipt, SummarisedRefusal } from './arrival.ts'
import type { Principal } from './facts.ts'
import { RECORDER, type Recorder, type RefusedBy, StaleAuthority } from './recorder.ts'
import { Refusal, toRefusal } from './refusal.ts'

export type {
  Arrival,
  CallSettlement,
  HangupSignal,
  MemoryOwner,
  MemoryReservation,
  Receipt,
  SummarisedRefusal,
  TlsPeer,
} from './arrival.ts'
export { RECORDER, type Recorder, type RefusedBy, StaleAuthority } from './recorder.ts'

/**
 * Looks at the facts known so far and either adds facts or throws a {@link Refusal}.
 *
 * @example
 * const weekdays: Plugin<Arrival, object> = {
 *   name: 'weekdays',
 *   admit: ({ at }) => {
 *     if ([0, 6].includes(new Date(at).getUTCDay())) throw new Refusal('policy_denied')
 *     return {}
 *   },
 * }
 */
export interface Plugin<Needs extends object, Gives extends object> {
  /** snake_case. The ledger's `refused_by`, for ever. */
  readonly name: string
  // A property, not a method: so that Needs is contravariant and a wrong order does not compile.
  readonly admit: (facts: Needs) => Gives | Promise<Gives>
  /**
   * Asks the question again about a call that `admit` let through, at a later instant (`facts.at`). Gives the
   * facts of then, and refuses as `admit` does. Absent: the question is about the message alone.
   */
  readonly still?: (facts: Needs & Gives) => Partial<Gives> | Promise<Partial<Gives>>
  /**
   * Called once for each call that `admit` has let through, when it has ended: for budgets and counters. The
   * result is ignored; an error is logged and counted, and reaches nobody.
   */
  readonly settled?: (facts: Needs & Gives, settlement: CallSettlement) => unknown
}

/** A question whose answer replaces a fact. */
type Refresh<Facts extends object> = Pick<Plugin<Facts, Partial<Facts>>, 'name' | 'admit'>

/** Keeps a fact from being written twice: a plugin that gives one that is known already does not compile. */
type UnknownFacts<Known, Gives> = [keyof Known & keyof Gives] extends [never] ? unknown : never

/** Called with an error that was thrown while a call was settled, and with the name of its thrower. */
export type OnFault = (by: string, error: unknown) => void

/**
 * Tells the record, and every plugin that had let the call through, how the call ended. To be called once.
 */
export type SettleCall = (settlement: CallSettlement, onFault: OnFault) => void

export interface AdmittedCall<Facts> {
  readonly allowed: true
  readonly facts: Facts
  readonly receipt: Receipt | null
  readonly settled: SettleCall
}

export interface RefusedCall<Facts> {
  readonly allowed: false
  readonly refusal: Refusal
  readonly by: string
  readonly facts: Arrival & Partial<Facts> & { readonly principal?: Principal }
  readonly receipt: Receipt | SummarisedRefusal | null
  readonly settled: SettleCall
}

export type Decision<Facts> = AdmittedCall<Facts> | RefusedCall<Facts>

type AnyPlugin = Plugin<object, object>

/** Establishes again the facts that can change. Rejects with a {@link Refusal} if the call is refused now. */
export type AskAgain<Facts> = (facts: Facts) => Promise<Facts>

/**
 * An ordered list of plugins whose order the compiler checks. Immutable. `From`: the facts when it begins.
 */
export class Pipeline<Facts extends Arrival, From extends Arrival = Arrival> {
  readonly #plugins: readonly AnyPlugin[]
  /** The place from which a call is judged once more. */
  readonly #mark: number
  /** The plugins of the second judgement: the same, with those that are asked before it at the mark. */
  readonly #again: readonly AnyPlugin[]
  /** The questions asked again while a call is under way. Null if there is none. */
  readonly askAgain: AskAgain<Facts> | null

  private constructor(plugins: readonly AnyPlugin[], mark: number, again: readonly AnyPlugin[]) {
    this.#plugins = plugins
    this.#mark = mark
    this.#again = again
    this.askAgain = makeAskAgain<Facts>(plugins)
  }

  static start<Known extends Arrival = Arrival>(): Pipeline<Known, Known> {
    return new Pipeline<Known, Known>([], 0, [])
  }

  pass<Gives extends object>(
    plugin: Plugin<Facts, Gives> & UnknownFacts<Facts, Gives>,
  ): Pipeline<Facts & Gives, From> {
    // Proven by the parameter's type: the plugins before it give what `plugin` needs.
    const next = plugin as unknown as AnyPlugin
    return new Pipeline<Facts & Gives, From>([...this.#plugins, next], this.#mark, [...this.#again, next])
  }

  /**
   * Marks the place from which a call is judged once more if its record is stale. `refresh` is asked before
   * that, and its facts replace the former ones. Without a mark it is the beginning.
   */
  anew(...refresh: readonly Refresh<Facts>[]): Pipeline<Facts, From> {
    // Proven by the parameter's type, as in pass().
    const again = [...this.#plugins, ...(refresh as unknown as readonly AnyPlugin[])]
    return new Pipeline<Facts, From>(this.#plugins, this.#plugins.length, again)
  }

  /** The plugins' names in their order, as `check-config` prints them. */
  get names(): readonly string[] {
    return this.#plugins.map(({ name }) => name)
  }

  /** The names of those that {@link askAgain} asks. */
  get namesAskedAgain(): readonly string[] {
    return this.#plugins.filter(({ still }) => still).map(({ name }) => name)
  }

  /**
   * Runs every plugin in order, then records. A plugin that breaks has refused (`plugin_failed`). A record
   * that cannot be written makes the decision a refusal with `audit_unavailable`. If it is {@link
   * StaleAuthority} the call is judged once more from {@link again} on; if it is so again and again, the
   * decision is a refusal with `overloaded`. A call refused by a fact that is not so any more is judged once
   * more too.
   */
  async decide(arrival: From, recorder: Recorder<Facts>): Promise<Decision<Facts>> {
    let judged = new CallJudgement<Facts>(this.#plugins, arrival, recorder)
    await judged.ask()
    const late = judged.refusal && (await judged.outdated())
    const decided = late ? null : await judged.record()
    if (decided) return decided
    if (!late && judged.given.length < this.#mark) return judged.overtaken()
    if (!late) await judged.outdated()
    const known = judged.given.slice(0, judged.given.length < this.#mark ? 0 : this.#mark)
    const plugins = known.length === this.#mark ? this.#again : this.#plugins
    const faults: SettlementFault[] = []
    for (let times = 1; ; times += 1) {
      faults.push(...judged.release(known.length))
      judged = new CallJudgement<Facts>(plugins, arrival, recorder, [...known])
      await judged.ask()
      const decision = (await judged.record()) ?? (times === MAX_JUDGEMENTS ? await judged.overtaken() : null)
      if (decision) return { ...decision, settled: afterFaults(faults, decision.settled) }
      await judged.outdated()
    }
  }
}

function makeAskAgain<Facts extends Arrival>(plugins: readonly AnyPlugin[]): AskAgain<Facts> | null {
  const asked = plugins.filter(({ still }) => still)
  if (asked.length === 0) return null
  return async (facts) => {
    const now: Facts = { ...facts }
    for (const { still } of asked) Object.assign(now, await still?.(now))
    return now
  }
}

/** Changes that come one after the other must not refuse a call that all of them allow. */
const MAX_JUDGEMENTS = 4

/**
 * The facts of a call. V8 finds the members of an object by their place up to a number that grows with those of
 * its constructor; so many in a copy that was spread are a hash table, and each reader of one pays for it.
 */
class KnownFacts implements Arrival {
  readonly id: Arrival['id']
  readonly at: Arrival['at']
  readonly method: Arrival['method']
  readonly path: Arrival['path']
  readonly query: Arrival['query']
  readonly params: Arrival['params']
  readonly headers: Arrival['headers']
  readonly remoteAddress: Arrival['remoteAddress']
  readonly localUid: Arrival['localUid']
  readonly peer: Arrival['peer']
  readonly readBody: Arrival['readBody']
  readonly held: Arrival['held']
  readonly answer: Arrival['answer']
  readonly hangup: Arrival['hangup']
  readonly authority: Arrival['authority']

  constructor(known: Arrival) {
    this.id = known.id
    this.at = known.at
    this.method = known.method
    this.path = known.path
    this.query = known.query
    this.params = known.params
    this.headers = known.headers
    this.remoteAddress = known.remoteAddress
    this.localUid = known.localUid
    this.peer = known.peer
    this.readBody = known.readBody
    this.held = known.held
    this.answer = known.answer
    this.hangup = known.hangup
    this.authority = known.authority
    Object.assign(this, known)
  }
}

/** One judgement of a call: the facts that plugins have established, and the first refusal. */
class CallJudgement<Facts extends Arrival> {
  readonly #plugins: readonly AnyPlugin[]
  readonly #recorder: Recorder<Facts>
  /** Grows with each plugin. */
  readonly facts: Arrival & Partial<Facts>
  /** The facts of each plugin that has let it through. */
  readonly given: (object | undefined)[]
  refusal: Refusal | null = null
  #by = RECORDER

  /** `given`: by the first of the plugins, which are not asked. */
  constructor(
    plugins: readonly AnyPlugin[],
    known: Arrival,
    recorder: Recorder<Facts>,
    given: CallJudgement<Facts>['given'] = [],
  ) {
    this.#plugins = plugins
    this.#recorder = recorder
    // The plugins' facts so far are part of Facts.
    this.facts = Object.assign(new KnownFacts(known), ...given) as Arrival & Partial<Facts>
    this.given = given
  }

  /** Asks the plugins until one refuses. A promise only if one had to be waited for. */
  ask(): Promise<void> | undefined {
    while (this.given.length < this.#plugins.length && !this.refusal) {
      try {
        const given = this.#plugins[this.given.length]?.admit(this.facts)
        if (isThenable(given)) return this.#wait(given)
        this.#let(given)
      } catch (error) {
        this.#refuse(error)
      }
    }
    return undefined
  }

  async #wait(given: PromiseLike<object | undefined>): Promise<void> {
    try {
      this.#let(await given)
    } catch (error) {
      this.#refuse(error)
    }
    await this.ask()
  }

  #let(given: object | undefined): void {
    Object.assign(this.facts, given)
    this.given.push(given)
  }

  #refuse(error: unknown): void {
    this.refusal = toRefusal(error, 'plugin_failed')
    this.#by = this.#plugins[this.given.length]?.name ?? RECORDER
  }

  /** Tells whether it was judged by facts that are not so any more; false if nobody can say. */
  async outdated(): Promise<boolean> {
    // If the database did not answer, nobody waits for it once more.
    if (this.refusal?.reason === 'audit_unavailable') return false
    try {
      return (await this.#recorder.current?.(this.facts)) === false
    } catch (error) {
      this.refusal = toRefusal(error, 'audit_unavailable')
      return false
    }
  }

  /** Records the decision. Null if it was made by an authority that has changed since. */
  async record(): Promise<Decision<Facts> | null> {
    const { refusal, facts } = this
    try {
      if (refusal)
        return this.#refused(refusal, await this.#recorder.refused(facts, refusal, this.#refusedBy()))
      // Proven by construction: every plugin of `Facts` has run.
      const known = facts as Facts
      return {
        allowed: true,
        facts: known,
        receipt: await this.#recorder.allowed(known),
        settled: this.#settling(known),
      }
    } catch (error) {
      return error instanceof StaleAuthority ? null : this.#unrecorded(error)
    }
  }

  /** Refuses a call whose authority has changed under it for the last time. */
  async overtaken(): Promise<RefusedCall<Facts>> {
    this.refusal = new Refusal('overloaded', { headers: { 'retry-after': '1' } })
    this.#by = RECORDER
    const decision = await this.record()
    return decision?.allowed === false ? decision : this.#unrecorded(this.refusal)
  }

  /** Tells plugins from a place on that their call is asked again. Returns what they threw. */
  release(from: number): readonly SettlementFault[] {
    const faults: SettlementFault[] = []
    const ended: CallSettlement = { at: Date.now(), status: 'refused', provider: null, detail: {} }
    this.#settle(from, ended, (...fault) => void faults.push(fault))
    return faults
  }

  #refusedBy(): RefusedBy {
    return { by: this.#by, passed: this.#plugins.slice(0, this.given.length).map(({ name }) => name) }
  }

  #refused(refusal: Refusal, receipt: RefusedCall<Facts>['receipt']): RefusedCall<Facts> {
    return { allowed: false, refusal, by: this.#by, facts: this.facts, receipt, settled: this.#settling() }
  }

  #unrecorded(error: unknown): RefusedCall<Facts> {
    const refusal = error instanceof Refusal ? error : new Refusal('audit_unavailable', { cause: error })
    this.#by = RECORDER
    return this.#refused(refusal, refusal.recorded)
  }

  /** The record first, if the call is `allowed`: whatever a plugin does, the outcome row is written. */
  #settling(allowed?: Facts): SettleCall {
    return (settlement, onFault) => {
      if (allowed) notifySettled(RECORDER, () => this.#recorder.settled?.(allowed, settlement), onFault)
      this.#settle(0, settlement, onFault)
    }
  }

  #settle(from: number, settlement: CallSettlement, onFault: OnFault): void {
    for (let at = from; at < this.given.length; at += 1) {
      const plugin = this.#plugins[at]
      if (plugin?.settled) notifySettled(plugin.name, () => plugin.settled?.(this.facts, settlement), onFault)
    }
  }
}

type SettlementFault = Parameters<OnFault>

/** Reports earlier faults, and then settles. */
function afterFaults(faults: readonly SettlementFault[], settled: SettleCall): SettleCall {
  return (settlement, onFault) => {
    for (const fault of faults) onFault(...fault)
    settled(settlement, onFault)
  }
}

function notifySettled(by: string, work: () => unknown, onFault: OnFault): void {
  const report = (error: unknown): void => {
    for (const fault of error instanceof SettlementFaults ? error.errors : [error]) onFault(by, fault)
  }
  try {
    const told = work()
    // Nobody waits for it, but a rejection that nobody hears would end the process.
    if (isThenable(told)) told.then(undefined, report)
  } catch (error) {
    report(error)
  }
}

/** Thrown by a plugin that settles for several: each of its errors is reported by itself. */
export class SettlementFaults extends AggregateError {}

const isThenable = <Value>(given: Value | PromiseLike<Value>): given is PromiseLike<Value> =>
  typeof given === 'object' && given !== null && 'then' in given && typeof given.then === 'function'
