/** The parts of an amount of which an alert tells. Percent. */
const ALERTED_PARTS = [50, 80, 100] as const

/** The groups shown, and the most principals followed. Calls of others count in the totals alone. */
const [MAX_SHOWN_PRINCIPALS, MAX_FOLLOWED_PRINCIPALS] = [500, 20_000]

/** A call of a walk, as a report names it. */
export interface CountedCall {
  /** The name that the ledger has for its principal. */
  readonly principal: string
  /** RFC 3339. */
  readonly at: string
  readonly requestId: string | null
  /** False: it came before the window, and fills meters alone. */
  readonly isCounted: boolean
}

interface FirstCall {
  readonly at: string
  readonly request_id: string | null
}

/** The calls of one principal that a limit is for. */
export interface LimitGroup {
  readonly principal_id: string
  readonly calls: number
  readonly refused: number
  readonly first_refused: FirstCall | null
  /** The most that its own calls use in one window; of a rate or of calls at once, that the meter is at with one. */
  readonly highest: number
}

/** A part of the amount, and how many meters come so far: each counts once in a window. */
export interface ReachedPart {
  readonly percent: number
  readonly times: number
  readonly first: FirstCall
}

/** The effect of one limit over a window of recorded calls. */
export interface LimitEffect {
  readonly name: string
  readonly calls: number
  readonly refused: number
  /** Calls that this limit refused, and would not now. */
  readonly allowed: number
  readonly undecidable: number
  /** The principals of the refused calls. */
  readonly principals: number
  readonly first_refused: FirstCall | null
  /** Most refused first, then most calls; 500 at most. */
  readonly groups: readonly LimitGroup[]
  readonly reached: readonly ReachedPart[]
  readonly truncated: boolean
}

type MutableGroup = { -readonly [Member in keyof LimitGroup]: LimitGroup[Member] } & {
  span: string
  used: number
}

/** Counts what a limit does to the calls of a walk. Memory by principals. */
export class LimitTally {
  readonly #groups = new Map<string, MutableGroup>()
  readonly #reached = new Map<number, { times: number; readonly first: FirstCall }>()
  readonly #alerted = new Map<string, { readonly span: string; readonly percent: number }>()
  readonly #refusedOf = new Set<string>()
  #first: FirstCall | null = null
  #overflowed = false
  #counts = { calls: 0, refused: 0, allowed: 0, undecidable: 0 }

  /** Counts a call that the limit is for. */
  applied(call: CountedCall): void {
    if (!call.isCounted) return
    this.#counts.calls += 1
    const group = this.#groupOf(call.principal)
    if (group) group.calls += 1
  }

  undecided({ isCounted }: Pick<CountedCall, 'isCounted'>, count = 1): void {
    if (isCounted) this.#counts.undecidable += count
  }

  allowedNow({ isCounted }: CountedCall): void {
    if (isCounted) this.#counts.allowed += 1
  }

  refused({ principal, at, requestId, isCounted }: CountedCall): void {
    if (!isCounted) return
    const first = { at, request_id: requestId }
    this.#counts.refused += 1
    this.#first ??= first
    if (this.#refusedOf.size < MAX_FOLLOWED_PRINCIPALS) this.#refusedOf.add(principal)
    const group = this.#groupOf(principal)
    if (!group) return
    group.refused += 1
    group.first_refused ??= first
  }

  /** Notes what a principal uses more in a window, or less; `level`: of a meter without one. */
  used(principal: string, span: string, more: number, level?: number): void {
    const group = this.#groupOf(principal)
    if (!group) return
    if (level === undefined && span < group.span) return
    if (span !== group.span) [group.span, group.used] = [span, 0]
    group.used = level ?? group.used + more
    group.highest = Math.max(group.highest, group.used)
  }

  /** Notes how much of a meter is used with a call. */
  stands(call: CountedCall, { who, span, used, amount }: MeterStanding): void {
    const known = this.#alerted.get(who)
    if (known && span < known.span) return
    const before = known?.span === span ? known.percent : 0
    const now = ALERTED_PARTS.findLast((part) => used * 100 >= part * amount) ?? 0
    if (now <= before) return
    if (known || this.#alerted.size < MAX_FOLLOWED_PRINCIPALS) this.#alerted.set(who, { span, percent: now })
    if (!call.isCounted) return
    const first = { at: call.at, request_id: call.requestId }
    for (const part of ALERTED_PARTS) {
      if (part <= before || part > now) continue
      const reached = this.#reached.get(part)
      if (reached) reached.times += 1
      else this.#reached.set(part, { times: 1, first })
    }
  }

  effect(name: string): LimitEffect {
    const found = [...this.#groups.values()]
      .filter(({ calls }) => calls > 0)
      .toSorted((one, other) => other.refused - one.refused || other.calls - one.calls)
    return {
      ...{ name, ...this.#counts, principals: this.#refusedOf.size, first_refused: this.#first },
      groups: found
        .slice(0, MAX_SHOWN_PRINCIPALS)
        .map(({ span: _, used: __, ...group }): LimitGroup => group),
      reached: ALERTED_PARTS.flatMap((percent) => {
        const reached = this.#reached.get(percent)
        return reached ? [{ percent, ...reached }] : []
      }),
      truncated: this.#overflowed || found.length > MAX_SHOWN_PRINCIPALS,
    }
  }

  #groupOf(principal: string): MutableGroup | null {
    const known = this.#groups.get(principal)
    if (known) return known
    if (this.#groups.size === MAX_FOLLOWED_PRINCIPALS) {
      this.#overflowed = true
      return null
    }
    const counts = { calls: 0, refused: 0, first_refused: null, highest: 0 }
    const made = { principal_id: principal, ...counts, span: '', used: 0 }
    this.#groups.set(principal, made)
    return made
  }
}

interface MeterStanding {
  /** The principal whose meter it is; empty: of all together. */
  readonly who: string
  readonly span: string
  readonly used: number
  readonly amount: number
}
