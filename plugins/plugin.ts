import type { X509Certificate } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { JsonObject } from '../db/json.ts'
import type { Principal } from './facts.ts'
import { Refusal } from './refusal.ts'

/** The leaf certificate of a TLS client that has proven it holds the key. Says nothing about who that is. */
export interface Peer {
  readonly certificate: X509Certificate
  /** Lower-case hex SHA-256 of the DER (RFC 8705 §3.1). */
  readonly thumbprint: string
  /** ms since the epoch. */
  readonly notBefore: number
  /** ms since the epoch. */
  readonly notAfter: number
}

/** One request as it arrived: nothing about its sender is believed yet. */
export interface Arrival {
  /** `req_…`: the log's request id and the audit row's. */
  readonly id: string
  /** The instant of its arrival. ms since the epoch, read once. */
  readonly at: number
  readonly method: string
  /** The path as sent, before any `?`, never decoded. */
  readonly path: string
  /** The text behind the `?`, or the empty string. */
  readonly query: string
  /** The variable segments of the route's path, percent-decoded once. */
  readonly params: Readonly<Record<string, string>>
  readonly headers: IncomingHttpHeaders
  readonly remoteAddress: string
  /** Null where the client presented no certificate. */
  readonly peer: Peer | null
  /** Reads the whole body. Refuses with `body_too_large` past `limit` bytes. */
  readonly readBody: (limit: number) => Promise<Buffer>
  /** Headers that are sent whatever the outcome, e.g. DPoP-Nonce. */
  readonly answer: Record<string, string>
  /** Fires when the caller hangs up before the answer is whole. */
  readonly signal: AbortSignal
}

/** The end of a call, for plugins that count what came of it. */
export interface Settlement {
  /** The instant of its end. ms since the epoch. */
  readonly at: number
  /** `refused`: a plugin behind this one, or the record, refused it. Else the status of its outcome row. */
  readonly status: 'success' | 'error' | 'truncated' | 'refused'
  /** The provider, MCP resource or built-in tool that did the work; null where none was reached. */
  readonly provider: string | null
  /** As the outcome row says it: tokens, sizes, the upstream's status. */
  readonly detail: JsonObject
}

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

/** Keeps a fact from being written twice: a plugin that gives one that is known already does not compile. */
type Fresh<Known, Gives> = [keyof Known & keyof Gives] extends [never] ? unknown : never

/** The place of a decision in the ledger: the caller's receipt. */
export interface Receipt {
  readonly stream: string
  readonly seq: number
  readonly hash: string
}

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
  readonly receipt: Receipt | null
  readonly settled: Settling
}

export type Decision<Facts> = Admitted<Facts> | Refused<Facts>

/** The name of the recorder, as `refused_by` says it where a record could not be written. */
export const RECORDER = 'audit'

/**
 * Makes a decision durable before anything acts on it. Rejects where it cannot; then nothing may act.
 * `settled` is called once for each call that it has recorded as allowed, when the call has ended.
 */
export interface Recorder<in Facts extends Arrival> {
  readonly allowed: (facts: Facts) => Promise<Receipt | null>
  readonly refused: (facts: Arrival & Partial<Facts>, refusal: Refusal, by: string) => Promise<Receipt | null>
  readonly settled?: (facts: Facts, settlement: Settlement) => void
}

type AnyPlugin = Plugin<object, object>

/**
 * An ordered list of plugins whose order the compiler checks. Immutable: `pass` makes a longer one. `From` is
 * what is known when it begins: an arrival, or all that another pipeline has established.
 */
export class Pipeline<Facts extends Arrival, From extends Arrival = Arrival> {
  readonly #plugins: readonly AnyPlugin[]

  private constructor(plugins: readonly AnyPlugin[]) {
    this.#plugins = plugins
  }

  static start<Known extends Arrival = Arrival>(): Pipeline<Known, Known> {
    return new Pipeline<Known, Known>([])
  }

  pass<Gives extends object>(
    plugin: Plugin<Facts, Gives> & Fresh<Facts, Gives>,
  ): Pipeline<Facts & Gives, From> {
    // Proven by the parameter's type: whatever stands before it gives what `plugin` needs.
    return new Pipeline<Facts & Gives, From>([...this.#plugins, plugin as unknown as AnyPlugin])
  }

  /** The plugins' names in their order: what `check-config` prints. */
  get names(): readonly string[] {
    return this.#plugins.map(({ name }) => name)
  }

  /**
   * Runs every plugin in order, then records. A plugin that breaks has refused (`plugin_failed`). A record
   * that cannot be written makes the decision a refusal with `audit_unavailable`, and nothing is dispatched.
   */
  async decide(arrival: From, recorder: Recorder<Facts>): Promise<Decision<Facts>> {
    let facts: Arrival = arrival
    for (const [index, plugin] of this.#plugins.entries()) {
      try {
        const given = plugin.admit(facts)
        facts = { ...facts, ...(isThenable(given) ? await given : given) }
      } catch (error) {
        const settled = settling(this.#plugins.slice(0, index), facts)
        return refuse(facts as Arrival & Partial<Facts>, asRefusal(error), plugin.name, recorder, settled)
      }
    }
    // Proven by construction: every plugin of `Facts` has run.
    const all = facts as Facts
    const settled = settling(this.#plugins, facts)
    try {
      const receipt = await recorder.allowed(all)
      return { allowed: true, facts: all, receipt, settled: recordSettled(recorder, all, settled) }
    } catch (error) {
      return unrecorded<Facts>(all, error, settled)
    }
  }
}

const isThenable = <Value>(given: Value | PromiseLike<Value>): given is PromiseLike<Value> =>
  typeof given === 'object' && given !== null && 'then' in given && typeof given.then === 'function'

const NOBODY: Settling = () => {}

function settling(passed: readonly AnyPlugin[], facts: object): Settling {
  const counting = passed.filter(({ settled }) => settled !== undefined)
  if (counting.length === 0) return NOBODY
  return (settlement, onFault) => {
    for (const { name, settled } of counting) tell(name, () => settled?.(facts, settlement), onFault)
  }
}

/** The record first: whatever a plugin does, the outcome row is written. */
function recordSettled<Facts extends Arrival>(
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

async function refuse<Facts extends Arrival>(
  facts: Arrival & Partial<Facts>,
  refusal: Refusal,
  by: string,
  recorder: Recorder<Facts>,
  settled: Settling,
): Promise<Refused<Facts>> {
  try {
    const receipt = await recorder.refused(facts, refusal, by)
    return { allowed: false, refusal, by, facts, receipt, settled }
  } catch (error) {
    return unrecorded<Facts>(facts, error, settled)
  }
}

function unrecorded<Facts>(
  facts: Arrival & Partial<Facts>,
  error: unknown,
  settled: Settling,
): Refused<Facts> {
  const refusal = error instanceof Refusal ? error : new Refusal('audit_unavailable', { cause: error })
  return { allowed: false, refusal, by: RECORDER, facts, receipt: null, settled }
}

function asRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal('plugin_failed', { cause: error })
}
