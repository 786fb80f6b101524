import type { Granted } from '../../plugins/permit.ts'
import type { Arrival, Decision, Pipeline, Receipt, Recorder, Refused } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { StillHolds } from './open-calls.ts'
import { refusalReply } from './refusal.ts'
import type { Reply, Report } from './reply.ts'
import type { Ending } from './send.ts'

/** What a route made of an arrival: the reply, and who hears how it ended. */
export interface Answered {
  readonly reply: Reply
  readonly refusal: Refusal | null
  /** The plugin that refused, or null. */
  readonly by: string | null
  readonly principalId: string | null
  readonly receipt: Receipt | null
  /** Whether the call would still be allowed, asked while its answer streams; null where there was nothing to allow. */
  readonly stillHolds: StillHolds | null
  /** Called once, when the reply has ended. */
  readonly settle: (ended: Ended) => void
}

/** One door: a method, a path, and everything that happens behind it. `{name}` stands for one variable segment. */
export interface Route {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE'
  readonly path: string
  readonly answer: (arrival: Arrival) => Promise<Answered>
}

/** All that is known of a call when its reply has ended. */
export interface Ended {
  readonly ending: Ending
  /** What the handler says of it, or null where it had nothing to say. */
  readonly report: Report | null
  /** Why the work itself was refused after it had been allowed, e.g. by the provider; null where it was not. */
  readonly refusal: Refusal | null
  /** ms since the epoch. */
  readonly at: number
}

/** Writes the outcome of an allowed call. */
export type Settle<Facts> = (facts: Facts, ended: Ended) => void

/** How a refusal looks to this door's callers. */
export type Refuse = (refusal: Refusal, facts: Arrival) => Reply

/** Whether facts that were established once hold at a later instant. */
export type Recheck<Facts> = (facts: Facts, at: number) => Promise<boolean>

interface GatedRoute<Facts extends Arrival, From extends Arrival> {
  readonly pipeline: Pipeline<Facts, From>
  readonly refuse: Refuse
  readonly recorder: Recorder<Facts>
  readonly settle: Settle<Facts>
  readonly recheck: Recheck<Facts> | null
}

interface ForkedRoute<Facts extends Arrival> {
  readonly pipeline: Pipeline<Facts>
  readonly refuse: Refuse
  /** Records a refusal while it is read what is asked. */
  readonly refused: Recorder<Facts>['refused']
}

type Handler<Facts> = (facts: Facts) => Reply | Promise<Reply>

/**
 * A door that does gated work: its handler gets a {@link Granted}, which only the capability plugin makes, so it cannot
 * be mounted on a pipeline that does not gate it.
 */
export function gated<Facts extends Arrival & { granted: Granted }>(
  method: Route['method'],
  path: string,
  passage: Omit<GatedRoute<Facts, Arrival>, 'refuse'>,
  handler: Handler<Facts>,
): Route {
  return { method, path, answer: gatedBranch({ ...passage, refuse: overHttp }, handler) }
}

/** How a request goes on, with what is known of it by then. */
export type Branch<From extends Arrival> = (facts: From) => Promise<Answered>

/** What stands behind a gated door, by itself: for a door where only the message says what is asked. */
export const gatedBranch =
  <Facts extends Arrival & { granted: Granted }, From extends Arrival>(
    passage: GatedRoute<Facts, From>,
    handler: Handler<Facts>,
  ): Branch<From> =>
  (facts) =>
    pass(facts, passage, handler)

/** What stands behind an open door, by itself. */
export const openBranch =
  <Facts extends Arrival, From extends Arrival>(
    pipeline: Pipeline<Facts, From>,
    handler: Handler<Facts>,
    recorder: Recorder<Arrival>,
    refuse: Refuse,
  ): Branch<From> =>
  (facts) =>
    pass(facts, { pipeline, recorder, refuse, settle: () => {}, recheck: null }, handler)

/**
 * A door whose way depends on what was asked: `pipeline` establishes that, `choose` picks the way. Only a refusal is
 * recorded here; whatever way is taken records its own decision.
 */
export function forked<Facts extends Arrival>(
  method: Route['method'],
  path: string,
  { pipeline, refused, refuse }: ForkedRoute<Facts>,
  choose: (facts: Facts) => Branch<Facts>,
): Route {
  const refusalsOnly: Recorder<Facts> = { refused, allowed: () => Promise.resolve(null) }
  const answer = async (arrival: Arrival): Promise<Answered> => {
    const decision = await pipeline.decide(arrival, refusalsOnly)
    return decision.allowed ? choose(decision.facts)(decision.facts) : refusedAnswer(decision, refuse)
  }
  return { method, path, answer }
}

/** A door without a capability of its own: administration, health, keys. What it needs, its pipeline establishes. */
export function open<Facts extends Arrival>(
  method: Route['method'],
  path: string,
  pipeline: Pipeline<Facts>,
  handler: Handler<Facts>,
  recorder: Recorder<Arrival> = UNRECORDED,
  refuse: Refuse = overHttp,
): Route {
  return { method, path, answer: openBranch(pipeline, handler, recorder, refuse) }
}

const overHttp: Refuse = (refusal, { id }) => refusalReply(refusal, id)

/** For doors whose work writes its own row, or does nothing worth one. */
const UNRECORDED: Recorder<Arrival> = {
  allowed: () => Promise.resolve(null),
  refused: () => Promise.resolve(null),
}

async function pass<Facts extends Arrival, From extends Arrival>(
  known: From,
  { pipeline, recorder, refuse, settle, recheck }: GatedRoute<Facts, From>,
  handler: Handler<Facts>,
): Promise<Answered> {
  const decision = await pipeline.decide(known, recorder)
  if (!decision.allowed) return refusedAnswer(decision, refuse)
  const principalId = principalOf(decision)
  const { facts, receipt } = decision
  const { reply, refusal } = await act(facts, handler, refuse)
  return {
    reply,
    refusal,
    by: refusal ? 'handler' : null,
    principalId,
    receipt,
    stillHolds: recheck && ((at) => recheck(facts, at)),
    settle: (ended) => settle(facts, ended),
  }
}

function refusedAnswer<Facts extends Arrival>(decision: Refused<Facts>, refuse: Refuse): Answered {
  const { refusal, by, receipt } = decision
  const reply = refuse(refusal, decision.facts)
  const principalId = principalOf(decision)
  return { reply, refusal, by, principalId, receipt, stillHolds: null, settle: () => {} }
}

async function act<Facts extends Arrival>(
  facts: Facts,
  handler: Handler<Facts>,
  refuse: Refuse,
): Promise<{ reply: Reply; refusal: Refusal | null }> {
  try {
    return { reply: await handler(facts), refusal: null }
  } catch (error) {
    const refusal = refusalOf(error, facts.signal)
    return { reply: refuse(refusal, facts), refusal }
  }
}

function refusalOf(error: unknown, { aborted }: AbortSignal): Refusal {
  if (error instanceof Refusal) return error
  return aborted ? new Refusal('client_gone') : new Refusal('internal', { cause: error })
}

function principalOf<Facts extends Arrival>({ facts }: Decision<Facts>): string | null {
  const { principal } = facts as { principal?: { id: string } }
  return principal?.id ?? null
}
