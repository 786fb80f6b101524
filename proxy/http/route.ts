import type { TracedFacts } from '../../plugins/call-trace.ts'
import type { ChangeAuthor } from '../../plugins/operators/actor.ts'
import type { CallPermit } from '../../plugins/permit.ts'
import type {
  Arrival,
  Decision,
  HangupSignal,
  MemoryOwner,
  Pipeline,
  Receipt,
  Recorder,
  RefusedCall,
  SettleCall,
  SummarisedRefusal,
} from '../../plugins/plugin.ts'
import { Refusal, toRefusal } from '../../plugins/refusal.ts'
import type { RouteDoc } from './doc.ts'
import { refusalReply } from './refusal.ts'
import type { CallReport, Reply } from './reply.ts'
import type { ReplyEnding } from './send.ts'

/** The area of the service that a route belongs to, for log and metrics. */
export type Surface = 'llm' | 'mcp' | 'auth' | 'audit' | 'admin' | 'public'

export interface RouteAnswer {
  readonly reply: Reply
  readonly refusal: Refusal | null
  /** The plugin that refused, `handler`, or null. */
  readonly by: string | null
  /** The facts that were known when the call was decided. */
  readonly facts: Arrival & TracedFacts
  readonly principalId: string | null
  /** The door by which an operator came; null for anybody else. */
  readonly via: string | null
  readonly receipt: Receipt | SummarisedRefusal | null
  readonly settled: SettleCall
}

/**
 * Prints the place of a decision in the ledger, and the salt of its commitments (docs/ledger.md#commitments).
 */
export const printReceipt = ({ stream, seq, hash, salt }: Receipt): string =>
  `stream=${stream}, seq=${seq}, hash=${hash}${salt === undefined ? '' : `, salt=${salt}`}`

export interface HandledRequest extends RouteAnswer {
  readonly arrival: Arrival
  readonly surface: Surface
  /** The route's path, never the caller's: anonymous callers must not make labels grow. */
  readonly path: string
}

/**
 * Asks a call again all its questions, with the facts of now. Rejects with a `Refusal` if it is refused now.
 */
export type AskCallAgain = (now: Pick<Arrival, 'at'>) => Promise<unknown>

/** Called before a call is acted on, with a function that asks it again, and the caller's id or null. */
export type OnAllowed = (ask: AskCallAgain, principalId: string | null) => void

/** A route without its surface. `{name}` stands for one variable segment. */
export interface BareRoute {
  /** `OTHER`: whatever no other route of the path serves. */
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE' | 'OTHER'
  readonly path: string
  /** True of a GET that uses something up: HEAD is not answered there. */
  readonly usesUp?: boolean
  readonly answer: (arrival: Arrival, onAllowed: OnAllowed) => Promise<RouteAnswer>
  readonly doc?: RouteDoc
}

export interface Route extends BareRoute {
  readonly surface: Surface
}

export const withRouteDoc = (route: BareRoute, doc: RouteDoc): BareRoute => ({ ...route, doc })

export const onSurface = (surface: Surface, routes: readonly BareRoute[]): readonly Route[] =>
  routes.map((route) => ({ ...route, surface }))

export interface FinishedCall {
  readonly ending: ReplyEnding
  /** The handler's report, or one that was made of the refusal; null if there is neither. */
  readonly report: CallReport | null
  /**
   * The refusal that was answered: of a plugin, or of the work itself after it had been allowed; null: none.
   */
  readonly refusal: Refusal | null
  /** ms since the epoch. */
  readonly at: number
}

export type RenderRefusal = (refusal: Refusal, facts: Arrival) => Reply

interface GatedRoute<Facts extends Arrival, From extends Arrival> {
  readonly pipeline: Pipeline<Facts, From>
  readonly refuse: RenderRefusal
  readonly recorder: Recorder<Facts>
}

interface ForkedRoute<Facts extends Arrival> {
  readonly pipeline: Pipeline<Facts>
  readonly refuse: RenderRefusal
  /** Records a refusal that comes before the branch is known. */
  readonly recorder: Pick<Recorder<Facts>, 'refused' | 'current'>
}

type Handler<Facts> = (facts: Facts) => Reply | Promise<Reply>

/** Makes an endpoint that does gated work: its handler gets a {@link CallPermit}. */
export function gatedRoute<Facts extends Arrival & { granted: CallPermit }>(
  method: Route['method'],
  path: string,
  route: Omit<GatedRoute<Facts, Arrival>, 'refuse'> & { readonly refuse?: RenderRefusal },
  handler: Handler<Facts>,
): BareRoute {
  return { method, path, answer: gatedBranch({ refuse: overHttp, ...route }, handler) }
}

/** One branch of an endpoint: answers a request from the facts that are known by then. */
export type RouteBranch<From extends Arrival> = (facts: From, onAllowed: OnAllowed) => Promise<RouteAnswer>

/** Makes a branch that does gated work, for an endpoint at which only the message tells which work it is. */
export const gatedBranch =
  <Facts extends Arrival & { granted: CallPermit }, From extends Arrival>(
    route: GatedRoute<Facts, From>,
    handler: Handler<Facts>,
  ): RouteBranch<From> =>
  (facts, onAllowed) =>
    decideAndHandle(facts, route, handler, onAllowed)

/** Makes a branch that does work without a capability of its own. */
export const openBranch =
  <Facts extends Arrival, From extends Arrival>(
    pipeline: Pipeline<Facts, From>,
    handler: Handler<Facts>,
    recorder: Recorder<Arrival>,
    refuse: RenderRefusal,
  ): RouteBranch<From> =>
  (facts, onAllowed) =>
    decideAndHandle(facts, { pipeline, recorder, refuse }, handler, onAllowed)

/**
 * Makes an endpoint whose branch depends on the message: `pipeline` reads it, `choose` picks the branch. Only
 * a refusal is recorded here; the branch records its own decision.
 */
export function forkedRoute<Facts extends Arrival>(
  method: Route['method'],
  path: string,
  { pipeline, recorder, refuse }: ForkedRoute<Facts>,
  choose: (facts: Facts) => RouteBranch<Facts>,
): BareRoute {
  const { refused, current } = recorder
  const refusalsOnly: Recorder<Facts> = {
    refused,
    allowed: () => Promise.resolve(null),
    current,
  }
  const answer: BareRoute['answer'] = async (arrival, onAllowed) => {
    const decision = await pipeline.decide(arrival, refusalsOnly)
    if (!decision.allowed) return refusedAnswer(decision, refuse)
    const { facts, settled: read } = decision
    const { askAgain } = pipeline
    // The branch is asked with the present facts of the message.
    const answered = await choose(facts)(facts, (ask, principalId) =>
      onAllowed(async (now) => ask(askAgain ? await askAgain({ ...facts, ...now }) : now), principalId),
    )
    const settled: SettleCall = (settlement, onFault) => {
      answered.settled(settlement, onFault)
      read(settlement, onFault)
    }
    return { ...answered, settled }
  }
  return { method, path, answer }
}

/** Makes an endpoint without a capability of its own: administration, health, keys. */
export function openRoute<Facts extends Arrival>(
  method: Route['method'],
  path: string,
  pipeline: Pipeline<Facts>,
  handler: Handler<Facts>,
  recorder: Recorder<Arrival> = UNRECORDED,
  refuse: RenderRefusal = overHttp,
): BareRoute {
  return { method, path, answer: openBranch(pipeline, handler, recorder, refuse) }
}

const overHttp: RenderRefusal = (refusal, { id }) => refusalReply(refusal, id)

/** The recorder of endpoints whose work writes its own row, or does nothing worth one. */
const UNRECORDED: Recorder<Arrival> = {
  allowed: () => Promise.resolve(null),
  refused: () => Promise.resolve(null),
}

async function decideAndHandle<Facts extends Arrival, From extends Arrival>(
  known: From,
  { pipeline, recorder, refuse }: GatedRoute<Facts, From>,
  handler: Handler<Facts>,
  onAllowed: OnAllowed,
): Promise<RouteAnswer> {
  const decision = await pipeline.decide(known, recorder)
  if (!decision.allowed) return refusedAnswer(decision, refuse)
  const { facts, receipt, settled } = decision
  const answered = { receipt, settled, ...callerOf(decision) }
  const { askAgain } = pipeline
  onAllowed(async (now) => askAgain?.({ ...facts, ...now }), answered.principalId)
  try {
    const reply = await handler(facts)
    const later = countWhole(reply, facts)
    if (later) await later
    return { ...answered, reply, refusal: null, by: null }
  } catch (error) {
    const refusal = refusalOfCall(error, facts.hangup)
    return { ...answered, reply: refuse(refusal, facts), refusal, by: 'handler' }
  }
}

function refusedAnswer<Facts extends Arrival>(
  decision: RefusedCall<Facts>,
  refuse: RenderRefusal,
): RouteAnswer {
  const { refusal, by, facts, receipt, settled } = decision
  const reply = refuse(refusal, facts)
  return { reply, refusal, by, ...callerOf(decision), receipt, settled }
}

/** A shorter answer costs less than its connection does, and is not counted. Bytes. */
const MIN_COUNTED_ANSWER = 16_384

/** Counts an answer that is sent whole, as soon as it fits: its caller may not read it. */
function countWhole({ body }: Reply, facts: Arrival): Promise<void> | undefined {
  if (typeof body !== 'string' && !Buffer.isBuffer(body)) return undefined
  if (body.length < MIN_COUNTED_ANSWER) return undefined
  // Plugins have named the caller by now.
  facts.held.setOwner(facts as Arrival & MemoryOwner)
  return facts.held.reserveReply(Buffer.byteLength(body))
}

function refusalOfCall(error: unknown, { gone, reason }: HangupSignal): Refusal {
  // If the authority of a call is gone, that is why it ended, whatever it ended with.
  if (reason instanceof Refusal) return reason
  return gone && !(error instanceof Refusal) ? new Refusal('client_gone') : toRefusal(error, 'internal')
}

function callerOf<Facts extends Arrival>(
  decision: Decision<Facts>,
): Pick<RouteAnswer, 'facts' | 'principalId' | 'via'> {
  // Plugins give each of these names to one fact (plugins/facts.ts).
  const facts = decision.facts as Arrival &
    TracedFacts & {
      readonly principal?: { readonly id: string }
      readonly actor?: Pick<ChangeAuthor, 'id' | 'via'>
    }
  const { principal, actor } = facts
  return { facts, principalId: principal?.id ?? actor?.id ?? null, via: actor?.via ?? null }
}
