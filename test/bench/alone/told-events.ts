// Measures the translation of a stream event by event, without a server around it.
// Usage: node told-events.ts SECONDS
import { createHistogram } from 'node:perf_hooks'
import { OPTIONS, told } from '../../support/llm/translate.ts'
import { BURST_ANSWER } from '../load/messages.ts'
import { type CallWires, MESSAGES_ANSWER, wireCall } from '../load/wire-calls.ts'

/** The time from an event's bytes to those of the caller's API. µs. */
export interface ToldEvents {
  readonly wires: string
  readonly events: number
  readonly p50: number
  readonly p99: number
}

const STREAMS = { chat: eventsOf(BURST_ANSWER), messages: eventsOf(MESSAGES_ANSWER) }
const WIRES: readonly CallWires[] = [
  { from: 'messages', to: 'chat' },
  { from: 'responses', to: 'chat' },
  { from: 'chat', to: 'messages' },
  { from: 'responses', to: 'messages' },
]
/** The answers that are translated first: figures before that are those of V8's compiler. */
const WARM_UP = 300

const seconds = Number(process.argv[2] ?? '2')
process.stdout.write(`${JSON.stringify(WIRES.map(measure))}\n`)

function measure(wires: CallWires): ToldEvents {
  const body = wireCall(wires, 'burst').body
  const target = { ...OPTIONS, wire: wires.to }
  const took = createHistogram({ lowest: 1, highest: 1_000_000_000, figures: 3 })
  let until = Number.POSITIVE_INFINITY
  for (let answers = 0; performance.now() < until; answers += 1) {
    if (answers === WARM_UP) until = performance.now() + (seconds * 1_000) / WIRES.length
    const { answer } = told(wires.from, body, target)
    for (const event of STREAMS[wires.to]) {
      const since = process.hrtime.bigint()
      answer.push(event)
      const ns = process.hrtime.bigint() - since
      if (answers >= WARM_UP) took.record(ns)
    }
    if (!answer.isWhole) throw new Error('a stream was not translated whole')
  }
  const [p50, p99] = [50, 99].map((percent) => took.percentile(percent) / 1_000)
  return { wires: `${wires.from}>${wires.to}`, events: took.count, p50: p50 ?? 0, p99: p99 ?? 0 }
}

/** Splits an answer into its events, without the head and the framing of its chunks. */
function eventsOf(answer: Buffer): readonly Buffer[] {
  return [...answer.toString().matchAll(/(?:^|\n)((?:event: .*\n)?data: .*\n\n)/g)].map(([, event]) =>
    Buffer.from(event ?? ''),
  )
}
