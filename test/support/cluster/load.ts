import { setTimeout as sleep } from 'node:timers/promises'
import { type Answered, agentOf, ask, type Identity } from '../gateway.ts'
import type { Door, Stage } from './stage.ts'

/** The clock of all times of calls: tells their order, and measures nothing (test/support/lanes.ts). ms. */
export const callClock = (): number => performance.now()

/** A call of the load and what became of it. Times are of {@link callClock}. */
export interface Made {
  readonly model: string
  readonly by: string
  readonly sentAt: number
  readonly endedAt: number
  /** 0: the connection broke. -1: it was given up, after {@link GIVE_UP_MS}. */
  readonly status: number
  readonly reason: string | null
  /** What its caller was promised: a row, durable. */
  readonly receipt: { readonly stream: string; readonly seq: number; readonly hash: string } | null
}

export interface Load {
  readonly made: readonly Made[]
  /** Resolves with the calls so far once `enough` holds of them; rejects after a minute. */
  readonly until: (enough: (made: readonly Made[]) => boolean) => Promise<void>
  /** Lets each caller end the call that it is at. */
  readonly stop: () => Promise<void>
}

export interface LoadOptions {
  /** Default: through the door. */
  readonly url?: string
  readonly callers?: number
  /** Between two calls of a caller. ms. */
  readonly pauseMs?: number
  /** The kind in the models' names. Default `call`. */
  readonly kind?: string
}

export const PATH = '/v1/chat/completions'
const GIVE_UP_MS = 30_000
const PATIENCE_MS = 60_000

let models = 0

/** A name that no other call has. */
export const freshModel = (kind = 'call'): string => `gpt-${kind}-${++models}-`

/** Calls on connections that stay open, one after the other on each, until told to stop. Each has a model of its own. */
export function load(
  stage: Pick<Stage<Door>, 'ca' | 'door'>,
  who: Identity,
  options: LoadOptions = {},
): Load {
  const { url = stage.door.url, callers = 12, pauseMs = 20, kind } = options
  const made: Made[] = []
  let going = true
  const caller = async (): Promise<void> => {
    let agent = agentOf(stage.ca, who, true)
    while (going) {
      const one = await callOnce(url, who, agent, {}, freshModel(kind))
      made.push(one)
      if (one.status <= 0) {
        agent.destroy()
        agent = agentOf(stage.ca, who, true)
      }
      await sleep(pauseMs)
    }
    agent.destroy()
  }
  const over = Promise.all(Array.from({ length: callers }, caller))
  return {
    made,
    until: async (enough) => {
      const end = performance.now() + PATIENCE_MS
      while (!enough(made)) {
        if (performance.now() > end) throw new Error(`of ${made.length} calls not enough: ${tally(made)}`)
        await sleep(5)
      }
    },
    stop: async () => {
      going = false
      await over
    },
  }
}

/** One call, whatever becomes of it. */
export async function callOnce(
  url: string,
  who: Identity,
  agent: ReturnType<typeof agentOf>,
  headers = {},
  model = freshModel(),
): Promise<Made> {
  const sentAt = callClock()
  const late = Promise.withResolvers<null>()
  const timer = setTimeout(() => late.resolve(null), GIVE_UP_MS)
  const asked = ask(url + PATH, 'POST', { agent, headers, body: { model, messages: [] } })
  const answered = await Promise.race([asked, late.promise]).catch(() => undefined)
  clearTimeout(timer)
  asked.catch(() => {})
  const found = answered
    ? foundIn(answered)
    : { status: answered === null ? -1 : 0, reason: null, receipt: null }
  return { model, by: who.id, sentAt, endedAt: callClock(), ...found }
}

function foundIn({ status, json, headers }: Answered): Pick<Made, 'status' | 'reason' | 'receipt'> {
  const receipt = /stream=([^,]+), seq=(\d+), hash=([0-9a-f]{64})/.exec(String(headers['audit-receipt']))
  const [, stream = '', seq, hash = ''] = receipt ?? []
  return {
    status,
    reason: json?.reason ?? json?.error?.code ?? null,
    receipt: receipt && { stream, seq: Number(seq), hash },
  }
}

/** How often each answer came. */
export const tally = (made: readonly Made[]): string =>
  JSON.stringify(
    Object.fromEntries(
      [...Map.groupBy(made, ({ status, reason }) => `${status} ${reason ?? ''}`.trim())].map(
        ([kind, all]) => [kind, all.length],
      ),
    ),
  )
