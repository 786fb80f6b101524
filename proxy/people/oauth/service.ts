import type Provider from 'oidc-provider'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { TokenKeys } from '../../auth/token-keys.ts'
import { jsonReply, type Reply } from '../../http/reply.ts'
import { type BridgedExchange, exchangeOf } from './bridge.ts'
import { PeopleUnit, withinUnit } from './unit.ts'

/** Clients refresh at once, and other changes come between: a request is judged again so often. */
const MAX_TRIES = 5

interface PeopleServiceDependencies {
  readonly url: string
  readonly ledger: Pick<Ledger, 'commit'>
  readonly keys: Pick<TokenKeys, 'signer'>
  /** Makes the authorization server that signs with a key. */
  readonly make: (signer: object) => Promise<Provider>
}

interface MadeProvider {
  readonly kid: string
  readonly provider: Promise<Provider>
}

/** The authorization server of one configuration: each request is one unit of the ledger. */
export class PeopleService {
  readonly url: string
  readonly #host: string
  readonly #means: PeopleServiceDependencies
  #made: MadeProvider | null = null

  constructor(means: PeopleServiceDependencies) {
    this.#means = means
    this.url = means.url
    this.#host = new URL(means.url).host
  }

  /** The server that signs with the present key; it is made anew when that rotates. */
  async provider(): Promise<Provider> {
    const { kid, key } = await this.#means.keys.signer()
    if (this.#made?.kid !== kid) {
      const signer = { ...key.export({ format: 'jwk' }), kid, alg: 'ES256', use: 'sig' }
      this.#made = { kid, provider: this.#means.make(signer) }
    }
    return this.#made.provider
  }

  exchange(arrival: Arrival, options: Parameters<typeof exchangeOf>[2] = {}): Promise<BridgedExchange> {
    return exchangeOf(arrival, this.#host, options)
  }

  /** Has the library answer a request, as one unit. */
  answer(arrival: Arrival, options: Parameters<typeof exchangeOf>[2] = {}): Promise<Reply> {
    return this.perform(arrival, async (provider) => {
      const { req, res } = await this.exchange(arrival, options)
      await provider.callback()(req, res)
      await res.ended.promise
      return res.reply
    })
  }

  /**
   * Does the work of a request, and writes all that it wrote before its answer is sent. If something else has
   * changed what it was judged by, it is done again. Refuses with `audit_unavailable`, and then nothing of it
   * is so: the same code works afterwards.
   */
  async perform(arrival: Arrival, work: (provider: Provider) => Promise<Reply>): Promise<Reply> {
    const provider = await this.provider()
    for (let tries = 1; ; tries += 1) {
      const unit = new PeopleUnit(arrival)
      const reply = await withinUnit(unit, () => work(provider)).catch((error: unknown) => {
        throw unit.refusal ?? error
      })
      if (unit.refusal) throw unit.refusal
      const { whole } = unit
      if (!whole || reply.status >= 500) return reply
      try {
        await this.#means.ledger.commit(whole)
        return reply
      } catch (cause) {
        const instead = overtakenReply(cause, unit)
        if (instead) return instead
        if (tries === MAX_TRIES) throw new Refusal('overloaded', { cause, headers: { 'retry-after': '1' } })
      }
    }
  }
}

/** The answer in place of one whose unit was not stored; null: to be tried again. Throws if there is none. */
function overtakenReply(cause: unknown, { usesCode }: PeopleUnit): Reply | null {
  if (!(cause instanceof LedgerError)) throw cause
  const { code } = cause
  // Another request at once: it has redeemed the same code, or shown the same proof.
  if (usesCode && (code === 'conflict' || code === 'duplicate'))
    return oauthError('invalid_grant', 'the code, or the proof, was used before')
  if (code === 'duplicate') return oauthError('invalid_dpop_proof', 'the proof or assertion was used before')
  if (code === 'conflict' || code === 'stale') return null
  throw new Refusal('audit_unavailable', { cause, headers: { 'retry-after': '1' } })
}

export const oauthError = (error: string, description: string, status = 400): Reply =>
  jsonReply(status, { error, error_description: description })
