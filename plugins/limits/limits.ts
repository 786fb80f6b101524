import { settledDetail } from '../../db/ledger/meters/detail.ts'
import type { MeterReservation, MeterSettlement } from '../../db/ledger/meters/meter-book.ts'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import { type CallLimit, meterAt } from '../../db/limits/limit.ts'
import type { ScopedThings } from '../../db/limits/scope.ts'
import { usedInOutcome } from '../../db/limits/used.ts'
import type { Principal } from '../facts.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import type { RulesInForce } from '../stops/stop.ts'
import { ApplyingLimits } from './applying.ts'
import {
  type BroughtIn,
  type CallSize,
  firstTokens,
  leastInput,
  mostInput,
  mostTokens,
  type UsageSamples,
} from './estimate.ts'
import type { KnownFull } from './known-full.ts'
import { limitRefusal } from './refusal.ts'

/** The limits that may apply to one call. */
export const MAX_APPLYING = 16

/** A limit that applies to a call, and what the call reserves of it. */
export interface LimitClaim {
  readonly limit: CallLimit
  readonly reservation: MeterReservation
}

/** The limits of a call, by the state of all rules that it was judged by. */
export interface CallLimits {
  readonly rulesRevision: number
  readonly claims: readonly LimitClaim[]
  /** Names the samples that its usage belongs to. */
  readonly model: string | null
  readonly samples?: UsageSamples
  readonly full?: KnownFull
  /** The caller's API, if it is a model's: refusals are written for it. */
  readonly wire?: string | undefined
  /** `provider/model` of each provider that may be asked, for the row. Absent: no limit looks at them. */
  readonly routed?: readonly string[]
}

/** The things of a call that limits look at, as its path states them. */
export interface LimitedThings extends ScopedThings {
  readonly size: CallSize
  /** The caller's API, if it is a model's. */
  readonly wire?: string | undefined
  /** The words of the call that prices differ by: `service_tier`, `speed`, `geo`. */
  readonly words?: Readonly<Record<string, unknown>>
  /** Reads what the call brings in. Asked for strict limits alone. Absent: nothing. */
  readonly broughtIn?: () => BroughtIn | Promise<BroughtIn>
}

type LimitNeeds = Arrival & RulesInForce & { readonly holder: Principal }

/** Says what a call costs, in micro-USD: null if its model has no price. */
export type CostEstimate = (
  things: LimitedThings,
  tokens: { readonly input: number; readonly output: number },
  /** True: at the dearest rates that it may be charged by. */
  atMost?: boolean,
) => number | null

export interface LimitDependencies {
  readonly samples: UsageSamples
  readonly full: KnownFull
  readonly costOf: CostEstimate
  /** Returns the tokens that the largest of models can take at once; null: of one nobody has said. */
  readonly windowOf: (models: readonly string[]) => number | null
}

/**
 * Finds the limits that apply to a call and what it reserves of each (docs/limits.md). Refuses with
 * `limits_too_many`, `limit_unbounded`, `limit_unpriced`, and with `limit_reached` if a limit is known to be used up. Else
 * it does NOT look at how much is used: the ledger does, in the transaction of the decision.
 */
export function callLimits<Facts extends object>(
  { samples, full, costOf, windowOf }: LimitDependencies,
  thingsOf: (facts: Facts) => LimitedThings,
): Plugin<LimitNeeds & Facts, { limits: CallLimits }> {
  let applying: ApplyingLimits | null = null
  let none: { limits: CallLimits } = { limits: { rulesRevision: 0, claims: NONE, model: null } }
  const admit = (facts: LimitNeeds & Facts): { limits: CallLimits } | Promise<{ limits: CallLimits }> => {
    const { rules } = facts
    if (applying?.rules !== rules) {
      applying = new ApplyingLimits(rules)
      none = { limits: { rulesRevision: rules.revision, claims: NONE, model: null } }
    }
    if (rules.limits.length === 0) return none
    const things = thingsOf(facts)
    const { holder } = facts
    const found = applying.to({ principal: holder, models: things.models, tool: things.tool })
    if (found.length > MAX_APPLYING) throw tooMany(found.length)
    const isStrict = things.broughtIn !== undefined && found.some(({ strict }) => strict)
    const broughtIn = isStrict ? things.broughtIn() : NOTHING
    if (broughtIn instanceof Promise) return broughtIn.then((one) => reserved(facts, things, found, one))
    return reserved(facts, things, found, broughtIn)
  }
  const reserved = (
    { holder, at, rules }: LimitNeeds & Facts,
    things: LimitedThings,
    found: readonly CallLimit[],
    broughtIn: BroughtIn,
  ): { limits: CallLimits } => {
    const model = things.models[0] ?? things.tool
    const routed = applying?.nameModels && things.wire !== undefined ? { routed: things.models } : {}
    const claims = found.map((limit): LimitClaim => {
      const { span, most, refill } = meterAt(limit, at)
      const took = tookOf(limit, {
        ...{ things, samples, costOf, broughtIn, windowOf },
        key: sampleKey(holder.ref, model, limit.measure),
      })
      const who = limit.each ? holder.ref : ''
      const refuses = limit.on === 'refuse'
      return {
        limit,
        reservation: { limit: limit.id, who, span, took, most, refuses, ...(refill && { refill }) },
      }
    })
    for (const { limit, reservation } of claims) {
      const over = reservation.refuses ? full.find(reservation, rules.revision) : undefined
      if (over) throw limitRefusal(limit, over, { at, wire: things.wire ?? null, recorded: null, ...routed })
    }
    return {
      limits: {
        rulesRevision: rules.revision,
        ...{ claims, model, samples, full, wire: things.wire, ...routed },
      },
    }
  }
  return { name: 'limits', admit }
}

const NONE: readonly never[] = []
const NOTHING: BroughtIn = { unbounded: null, whole: null, pictures: 0 }

const sampleKey = (principal: string, model: string | null, measure: CallLimit['measure']): string =>
  `${measure}\0${principal}\0${model ?? ''}`

interface TookDependencies extends Pick<LimitDependencies, 'samples' | 'costOf' | 'windowOf'> {
  readonly things: LimitedThings
  readonly broughtIn: BroughtIn
  readonly key: string
}

/** Estimates what a call uses of a limit. Whole numbers. */
function tookOf({ measure, strict }: CallLimit, dependencies: TookDependencies): number {
  if (measure === 'calls' || measure === 'concurrent') return 1
  const { things, samples, costOf, key } = dependencies
  const { size } = things
  const inMeasure = (tokens: { readonly input: number; readonly output: number }): number =>
    measure === 'tokens' ? tokens.input + tokens.output : costOrRefuse(costOf(things, tokens, strict))
  if (strict) return inMeasure(strictTokens(dependencies))
  const most = size.maxOutput === null ? Number.POSITIVE_INFINITY : inMeasure(mostTokens(size))
  const usual = samples.percentile(key)
  const least = inMeasure({ input: leastInput(size), output: 0 })
  const held = usual === null ? inMeasure(firstTokens(size)) : Math.max(usual, least)
  return Math.ceil(Math.min(held, most))
}

/** Tokens that a call cannot pass, or a refusal that names what has no bound. */
function strictTokens({ things: { size, models }, broughtIn, windowOf }: TookDependencies) {
  const { unbounded: member, whole } = broughtIn
  if (member !== null) throw unbounded(member)
  if (size.maxOutput === null) throw new Refusal('limit_unbounded')
  const input = mostInput(
    size,
    broughtIn,
    whole === null && broughtIn.pictures === 0 ? null : windowOf(models),
  )
  if (input === Number.POSITIVE_INFINITY)
    throw unbounded(whole ?? '', 'no price states the window of its model')
  return { input, output: size.maxOutput }
}

function costOrRefuse(cost: number | null): number {
  if (cost === null) throw new Refusal('limit_unpriced')
  return cost
}

const unbounded = (member: string, reason?: string): Refusal =>
  new Refusal('limit_unbounded', {
    message: `A strict limit applies to this call, and what its ${member} brings in has no bound${reason ? `: ${reason}` : ''}. ${ADVICE[member] ?? 'Leave it out.'}`,
  })

const ADVICE: Readonly<Record<string, string>> = {
  stream_options: 'Ask for stream_options.include_usage.',
}

const tooMany = (count: number): Refusal =>
  new Refusal('limits_too_many', {
    message: `${count} limits apply to this call; at most ${MAX_APPLYING} may. Tell the operator.`,
  })

/** Settles what an ended call has reserved, by its outcome. What nobody has stated is charged as it was held. */
export function settlementsOf(
  { claims, samples, model }: CallLimits,
  { at, principal_id: principal, detail }: LedgerEntry,
): readonly MeterSettlement[] {
  return claims.map((claim) => {
    const { measure } = claim.limit
    const used = usedInOutcome(measure, detail)
    if (used !== null && (measure === 'tokens' || measure === 'cost'))
      samples?.add(sampleKey(principal ?? '', model, measure), used)
    return settlementOf(claim, at, used ?? claim.reservation.took)
  })
}

/** Settles what a call has reserved that was not made. */
export const unusedSettlements = ({ claims }: CallLimits, at: number): readonly MeterSettlement[] =>
  claims.map((claim) => settlementOf(claim, at, 0))

const settlementOf = (
  { reservation: { limit, who, span, took, refill } }: LimitClaim,
  at: number,
  charged: number,
): MeterSettlement => ({ limit, who, span, took, charged, ...(refill && { refill: { ...refill, at } }) })

/** Has an outcome's row say what was settled. */
export const withLimits = (entry: LedgerEntry, settlements: readonly MeterSettlement[]): LedgerEntry =>
  settlements.length === 0
    ? entry
    : { ...entry, detail: { ...entry.detail, limits: settlements.map(settledDetail) } }
