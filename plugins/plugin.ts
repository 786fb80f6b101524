import type { Arrival, Receipt, Settlement, Summarised } from './arrival.ts'
import type { Principal } from './facts.ts'
import { RECORDER, type Recorder, Stale } from './recorder.ts'
import { Refusal } from './refusal.ts'

export type { Arrival, Caller, Hangup, Held, Peer, Receipt, Settlement, Summarised } from './arrival.ts'
export { RECORDER, type Recorder, type RefusedBy, Stale } from './recorder.ts'

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
  /** snake_case. It stands in the ledger as `refused_by`, for ever. */
  readonly name: string
  // A property, not a method: so that Needs is contravariant and a wrong order does not compile.
  readonly admit: (facts: Needs) => Gives | Promise<Gives>
  /**
   * Called once for each call that `admit` has let through, when the call has ended, whatever ended it: for
   * budgets and counters. What it returns is ignored. It should not throw or reject: where it does, that is
   * logged and counted, and reaches nobody.
   */
  readonly settled?: (facts: Needs & Gives, settlement: Settlement) => unknown
}

/** A question whose answer takes the place of what was known. */
type Refresh<Facts extends object> = Pick<Plugin<Facts, Partial<Facts>>, 'name' | 'admit'>

/** Keeps a fact from being written twice: a plugin that gives one that is known already does not compile. */
type Fresh<Known, Gives> = [keyof Known & keyof Gives] extends [never] ? unknown : never

/** Called with an error that was thrown while a call was settled, and with the name of its thrower. */
export type OnFault = (by: string, error: unknown) => void

/**
 * Tells the record, and every plugin that had let the call through, how the call ended. To be called once.
 * Their errors go to `onFault`: the others are told all the same.
 */
export type Settling = (settlement: Settlement, onFault: OnFault) => void

export interface Admitted<Facts> {
  readonly allowed: true
  readonly facts: Facts
  readonly receipt: Receipt | null
  readonly settled: Settling
}

export interface Refused<Facts> {
  readonly allowed: false
  readonly refusal: Refusal
  /** The name of the plugin that refused. */
  readonly by: string
  /** The facts that were known by then. */
  readonly facts: Arrival & Partial<Facts> & { readonly principal?: Principal }
  readonly receipt: Receipt | Summarised | null
  readonly settled: Settling
}

export type Decision<Facts> = Admitted<Facts> | Refused<Facts>

type AnyPlugin = Plugin<object, object>

/**
 * An ordered list of plugins whose order the compiler checks. Immutable: `pass` makes a longer one. `From` is
 * what is known when it begins: an arrival, or all that another pipeline has established.
 */
export class Pipeline<Facts extends Arrival, From extends Arrival = Arrival> {
  readonly #plugins: readonly AnyPlugin[]
  /** The place from which a call is judged once more, and the plugins that are asked before that. */
  readonly #anew: Anew

  private constructor(plugins: readonly AnyPlugin[], anew: Anew) {
    this.#plugins = plugins
    this.#anew = anew
  }

  static start<Known extends Arrival = Arrival>(): Pipeline<Known, Known> {
    return new Pipeline<Known, Known>([], { from: 0, refresh: [] })
  }

  pass<Gives extends object>(
    plugin: Plugin<Facts, Gives> & Fresh<Facts, Gives>,
  ): Pipeline<Facts & Gives, From> {
    // Proven by the parameter's type: whatever stands before it gives what `plugin` needs.
    return new Pipeline<Facts & Gives, From>([...this.#plugins, plugin as unknown as AnyPlugin], this.#anew)
  }

  /**
   * Marks the place from which a call is judged once more where its record is stale: all that is passed from
   * here on is asked a second time, with the facts that were known here. `refresh` is asked before that, and
   * what it gives takes the place of what was known. Without a mark it is the beginning.
   */
  anew(...refresh: readonly Refresh<Facts>[]): Pipeline<Facts, From> {
    // Proven by the parameter's type, as in pass().
    const asked = refresh as unknown as readonly AnyPlugin[]
    return new Pipeline<Facts, From>(this.#plugins, { from: this.#plugins.length, refresh: asked })
  }

  /** The plugins' names in their order: what `check-config` prints. */
  get names(): readonly string[] {
    return this.#plugins.map(({ name }) => name)
  }

  /**
   * Runs every plugin in order, then records. A plugin that breaks has refused (`plugin_failed`). A record
   * that cannot be written makes the decision a refusal with `audit_unavailable`, and nothing is dispatched.
   * Where it is {@link Stale} the call is judged once more from {@link anew} on; where it is so again, or was
   * refused before, the decision is a refusal with `overloaded`.
   */
  async decide(arrival: From, recorder: Recorder<Facts>): Promise<Decision<Facts>> {
    const { from, refresh } = this.#anew
    const tail = this.#plugins.slice(from)
    const head = await ask(this.#plugins.slice(0, from), arrival)
    if (head.refused) return (await record(NOTHING, head, recorder)) ?? overtaken(NOTHING, head, recorder)
    const first = await ask(tail, head.facts)
    const decided = await record(head, first, recorder)
    if (decided) return decided
    const faults = release(first)
    const second = await ask([...refresh, ...tail], head.facts)
    const decision = (await record(head, second, recorder)) ?? (await overtaken(head, second, recorder))
    return { ...decision, settled: afterFaults(faults, decision.settled) }
  }
}

interface Anew {
  readonly from: number
  readonly refresh: readonly AnyPlugin[]
}

/** The facts that plugins have made of a call by their end, and the first refusal, if there was one. */
interface Asked {
  readonly facts: Arrival
  /** Those that let it through. */
  readonly passed: readonly AnyPlugin[]
  readonly refused: { readonly refusal: Refusal; readonly by: string } | null
}

async function ask(plugins: readonly AnyPlugin[], known: Arrival): Promise<Asked> {
  let facts = known
  for (const [index, plugin] of plugins.entries()) {
    try {
      const given = plugin.admit(facts)
      facts = { ...facts, ...(isThenable(given) ? await given : given) }
    } catch (error) {
      const refused = { refusal: asRefusal(error), by: plugin.name }
      return { facts, passed: plugins.slice(0, index), refused }
    }
  }
  return { facts, passed: plugins, refused: null }
}

/** Records a decision. Null where it was made by an authority that has changed since. */
async function record<Facts extends Arrival>(
  head: Pick<Asked, 'passed'>,
  asked: Asked,
  recorder: Recorder<Facts>,
): Promise<Decision<Facts> | null> {
  const passed = [...head.passed, ...asked.passed]
  const settled = settling(passed, asked.facts)
  if (asked.refused) return refuse(asked, passed, recorder)
  // Proven by construction: every plugin of `Facts` has run.
  const facts = asked.facts as Facts
  try {
    const receipt = await recorder.allowed(facts)
    return { allowed: true, facts, receipt, settled: recordFirst(recorder, facts, settled) }
  } catch (error) {
    return error instanceof Stale ? null : unrecorded<Facts>(facts, error, settled)
  }
}

async function overtaken<Facts extends Arrival>(
  head: Pick<Asked, 'passed'>,
  asked: Asked,
  recorder: Recorder<Facts>,
): Promise<Refused<Facts>> {
  const refusal = new Refusal('overloaded', { headers: { 'retry-after': '1' } })
  const passed = [...head.passed, ...asked.passed]
  const refused = { ...asked, refused: { refusal, by: RECORDER } }
  const recorded = await refuse(refused, passed, recorder)
  // Proven by ask(), as in refuse().
  const facts = asked.facts as Arrival & Partial<Facts>
  return recorded ?? unrecorded<Facts>(facts, refusal, settling(passed, facts))
}

/** No plugin was asked before. */
const NOTHING: Pick<Asked, 'passed'> = { passed: [] }

const NOBODY: Settling = () => {}

/** Tells plugins that have let a call through how it ended. */
function settling(passed: readonly AnyPlugin[], facts: object): Settling {
  const counting = passed.filter(({ settled }) => settled !== undefined)
  if (counting.length === 0) return NOBODY
  return (settlement, onFault) => {
    for (const { name, settled } of counting) tell(name, () => settled?.(facts, settlement), onFault)
  }
}

type Fault = Parameters<OnFault>

/**
 * Tells plugins at once that a call they let through is not made: they are about to be asked again. Returns
 * what they threw, as it comes in.
 */
function release({ passed, facts }: Asked): readonly Fault[] {
  const faults: Fault[] = []
  const ended: Settlement = { at: Date.now(), status: 'refused', provider: null, detail: {} }
  settling(passed, facts)(ended, (...fault) => void faults.push(fault))
  return faults
}

/** Reports what was thrown before, and then settles. */
function afterFaults(faults: readonly Fault[], settled: Settling): Settling {
  return (settlement, onFault) => {
    for (const fault of faults) onFault(...fault)
    settled(settlement, onFault)
  }
}

/** The record first: whatever a plugin does, the outcome row is written. */
function recordFirst<Facts extends Arrival>(
  { settled }: Recorder<Facts>,
  facts: Facts,
  plugins: Settling,
): Settling {
  if (!settled) return plugins
  return (settlement, onFault) => {
    tell(RECORDER, () => settled(facts, settlement), onFault)
    plugins(settlement, onFault)
  }
}

function tell(by: string, work: () => unknown, onFault: OnFault): void {
  try {
    const told = work()
    // Nobody waits for it, but a rejection that nobody hears would end the process.
    if (isThenable(told)) told.then(undefined, (error: unknown) => onFault(by, error))
  } catch (error) {
    onFault(by, error)
  }
}

const isThenable = <Value>(given: Value | PromiseLike<Value>): given is PromiseLike<Value> =>
  typeof given === 'object' && given !== null && 'then' in given && typeof given.then === 'function'

/** Records a refusal. Null where it was made by an authority that has changed since. */
async function refuse<Facts extends Arrival>(
  { facts: known, refused }: Asked,
  passed: readonly AnyPlugin[],
  recorder: Recorder<Facts>,
): Promise<Refused<Facts> | null> {
  // Whatever plugins have given by then is of Facts.
  const facts = known as Arrival & Partial<Facts>
  const settled = settling(passed, known)
  const { refusal, by } = refused ?? { refusal: new Refusal('internal'), by: RECORDER }
  try {
    const receipt = await recorder.refused(facts, refusal, { by, passed: passed.map(({ name }) => name) })
    return { allowed: false, refusal, by, facts, receipt, settled }
  } catch (error) {
    return error instanceof Stale ? null : unrecorded<Facts>(facts, error, settled)
  }
}

function unrecorded<Facts>(
  facts: Arrival & Partial<Facts>,
  error: unknown,
  settled: Settling,
): Refused<Facts> {
  const refusal = error instanceof Refusal ? error : new Refusal('audit_unavailable', { cause: error })
  return { allowed: false, refusal, by: RECORDER, facts, receipt: refusal.recorded, settled }
}

function asRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal('plugin_failed', { cause: error })
}
