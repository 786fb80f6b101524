import type { X509Certificate } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
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

/** One request as it stands at the door: nothing about its sender is believed yet. */
export interface Arrival {
  /** `req_…`: the log's request id and the audit row's. */
  readonly id: string
  /** When it came. ms since the epoch, read once. */
  readonly at: number
  readonly method: string
  /** The path as sent, before any `?`, never decoded. */
  readonly path: string
  /** What followed the `?`, or the empty string. */
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

/**
 * Looks at the facts known so far and either adds facts or throws a {@link Refusal}.
 * `needs` and `gives` say the same as the types, for operators' files, which escape the compiler.
 */
export interface Plugin<Needs extends object, Gives extends object> {
  readonly name: string
  readonly needs: readonly string[]
  readonly gives: readonly string[]
  // A property, not a method: so that Needs is contravariant and a wrong order does not compile.
  readonly admit: (facts: Needs) => Gives | Promise<Gives>
}

/** Where a decision stands in the ledger: the caller's receipt. */
export interface Receipt {
  readonly stream: string
  readonly seq: number
  readonly hash: string
}

export interface Admitted<Facts> {
  readonly allowed: true
  readonly facts: Facts
  readonly receipt: Receipt | null
}

export interface Refused<Facts> {
  readonly allowed: false
  readonly refusal: Refusal
  /** The name of the plugin that refused. */
  readonly by: string
  /** What was known by then. */
  readonly facts: Arrival & Partial<Facts>
  readonly receipt: Receipt | null
}

export type Decision<Facts> = Admitted<Facts> | Refused<Facts>

/** Makes a decision durable before anything acts on it. Rejects where it cannot; then nothing may act. */
export interface Recorder<in Facts extends Arrival> {
  readonly allowed: (facts: Facts) => Promise<Receipt | null>
  readonly refused: (facts: Arrival & Partial<Facts>, refusal: Refusal, by: string) => Promise<Receipt | null>
}

type AnyPlugin = Plugin<object, object>

/**
 * An ordered list of plugins whose order the compiler checks. Immutable: `pass` makes a longer one. `From` is what is
 * known when it begins: an arrival, or all that another pipeline has established.
 */
export class Pipeline<Facts extends Arrival, From extends Arrival = Arrival> {
  readonly #plugins: readonly AnyPlugin[]

  private constructor(plugins: readonly AnyPlugin[]) {
    this.#plugins = plugins
  }

  static start<Known extends Arrival = Arrival>(): Pipeline<Known, Known> {
    return new Pipeline<Known, Known>([])
  }

  pass<Gives extends object>(plugin: Plugin<Facts, Gives>): Pipeline<Facts & Gives, From> {
    // Proven by the parameter's type: whatever stands before it gives what `plugin` needs.
    return new Pipeline<Facts & Gives, From>([...this.#plugins, plugin as unknown as AnyPlugin])
  }

  /** The plugins' names in their order: what a reviewer and `check-config` print. */
  get names(): readonly string[] {
    return this.#plugins.map((plugin) => plugin.name)
  }

  /**
   * Runs every plugin in order, then records. A plugin that breaks has refused (`plugin_failed`).
   * Where the record cannot be written the decision is a refusal with `audit_unavailable`, and nothing is dispatched.
   */
  async decide(arrival: From, recorder: Recorder<Facts>): Promise<Decision<Facts>> {
    let facts: Arrival = arrival
    for (const plugin of this.#plugins) {
      try {
        const given = plugin.admit(facts)
        facts = { ...facts, ...(given instanceof Promise ? await given : given) }
      } catch (error) {
        return refuse(facts as Arrival & Partial<Facts>, asRefusal(error), plugin.name, recorder)
      }
    }
    // Proven by construction: every plugin of `Facts` has run.
    const all = facts as Facts
    try {
      return { allowed: true, facts: all, receipt: await recorder.allowed(all) }
    } catch (error) {
      return unrecorded<Facts>(all, error)
    }
  }
}

async function refuse<Facts extends Arrival>(
  facts: Arrival & Partial<Facts>,
  refusal: Refusal,
  by: string,
  recorder: Recorder<Facts>,
): Promise<Refused<Facts>> {
  try {
    return { allowed: false, refusal, by, facts, receipt: await recorder.refused(facts, refusal, by) }
  } catch (error) {
    return unrecorded<Facts>(facts, error)
  }
}

function unrecorded<Facts>(facts: Arrival & Partial<Facts>, error: unknown): Refused<Facts> {
  const refusal = error instanceof Refusal ? error : new Refusal('audit_unavailable', { cause: error })
  return { allowed: false, refusal, by: 'audit', facts, receipt: null }
}

function asRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal('plugin_failed', { cause: error })
}
