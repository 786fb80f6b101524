import { Agent } from 'node:https'
import { ADMIN_SECRET, ask } from '../../gateway.ts'
import type { Replica } from '../replicas.ts'

/** What a gateway holds at an instant. Bytes; `at` in ms. */
export interface Sample {
  readonly at: number
  readonly heap: number
  readonly resident: number
  readonly descriptors: number
}

const EVERY_MS = 5_000

/** Looks at the gateways every few seconds, and adds up what they hold, until it is stopped. */
export function watching(replicas: readonly Replica[]) {
  const samples: Sample[] = []
  const agent = new Agent({ rejectUnauthorized: false, keepAlive: true })
  const look = async (): Promise<void> => {
    const heaps = await Promise.all(replicas.map((replica) => heapOf(replica, agent)))
    const held = replicas.map((replica) => replica.held())
    const sum = (of: readonly number[]): number => of.reduce((all, one) => all + one, 0)
    samples.push({
      at: performance.now(),
      heap: sum(heaps),
      resident: sum(held.map(({ resident }) => resident)),
      descriptors: sum(held.map(({ descriptors }) => descriptors)),
    })
  }
  // One look that fails is one sample less.
  const timer = setInterval(() => void look().catch(() => {}), EVERY_MS)
  return {
    stop: (): readonly Sample[] => {
      clearInterval(timer)
      agent.destroy()
      return samples
    },
  }
}

async function heapOf({ url }: Replica, agent: Agent): Promise<number> {
  const { text } = await ask(`${url}/metrics`, 'GET', { agent, headers: { 'x-admin-secret': ADMIN_SECRET } })
  const heap = Number(/^nodejs_heap_size_used_bytes ([\d.e+]+)$/m.exec(text)?.[1])
  if (Number.isNaN(heap)) throw new Error('there is no such figure')
  return heap
}

/** MiB by which what is left of the heap grows in an hour, behind the first quarter of the run, which warms up. */
export function slopeOf(samples: readonly Sample[]): number {
  const late = lowsOf(samples.slice(Math.floor(samples.length / 4)))
  const mean = (of: (one: Sample) => number): number =>
    late.reduce((all, one) => all + of(one), 0) / late.length
  const [at, heap] = [mean((one) => one.at), mean((one) => one.heap)]
  const above = late.reduce((all, one) => all + (one.at - at) * (one.heap - heap), 0)
  const below = late.reduce((all, one) => all + (one.at - at) ** 2, 0)
  return below === 0 ? 0 : ((above / below) * 3_600_000) / 1_048_576
}

/** The lowest of each minute: what stands above it is garbage that was not collected yet. */
const lowsOf = (samples: readonly Sample[]): readonly Sample[] =>
  [...Map.groupBy(samples, ({ at }) => Math.floor(at / 60_000)).values()].flatMap((minute) =>
    minute.toSorted((a, b) => a.heap - b.heap).slice(0, 1),
  )
