import { once } from 'node:events'
import { join, resolve } from 'node:path'
import { isChosen } from '../chosen.ts'
import { layOther } from '../copies.ts'
import { gatewayStart, type Prepared } from '../ground/gateway.ts'
import type { Ground } from '../ground/ground.ts'
import { openFilesLimit } from '../ground/proc.ts'
import { profiled } from '../run.ts'
import { BARE_PROXY, GATEWAY, subjects } from '../subjects.ts'
import type { Bench } from '../workbench.ts'
import type { StreamFigures, StreamJob } from './clients.ts'

/** Streams that are open at once, and the pause between two events of each. ms. */
export const STREAMS = [
  { streams: 200, everyMs: 50 },
  { streams: 300, everyMs: 50 },
  { streams: 500, everyMs: 50 },
  { streams: 2_000, everyMs: 1_000 },
] as const

/** Many streams of one server. Another checkout's gateway is `other`. */
export interface StreamsPoint extends StreamFigures {
  readonly server: string
  readonly streams: number
  readonly everyMs: number
}

/** Files that a server opens for each stream: the client's connection and the upstream's. */
const FILES = 2
const SPARE_FILES = 500
/** The time that a client's handshake may take, and the whole beyond its seconds. ms. */
const OPEN_MS = 60
const GRACE_MS = 30_000

interface StreamServer {
  readonly name: string
  readonly ground: Ground
  readonly start: (ground: Ground, upstreamPort: number) => Promise<Prepared>
}

/** Returns the name by which a point is chosen and progress is told. */
export const streamsName = (server: string, streams: number): string => `streams/${server} c=${streams}`

let starts = 0

const gateway = (name: string, ground: Ground): StreamServer => ({
  name,
  ground,
  start: () => {
    // Each start has a data directory of its own.
    starts += 1
    return gatewayStart(ground, `streams-${starts}`)
  },
})

/**
 * Measures this gateway, bare http-proxy-3, and the gateway of another checkout if there is one, each point in a
 * process of its own: memory is what so many streams take.
 */
export async function measureStreams(
  bench: Bench,
  against: string | undefined,
): Promise<readonly StreamsPoint[]> {
  const { ground, plan, say } = bench
  const bare = subjects().find(({ name }) => name === BARE_PROXY)
  const chosen = (server: string) =>
    STREAMS.filter(({ streams }) => isChosen(plan, streamsName(server, streams)))
  const servers = [
    gateway(GATEWAY, ground),
    ...(bare?.start ? [{ name: BARE_PROXY, ground, start: bare.start }] : []),
  ]
  if (against !== undefined && chosen('other').length > 0)
    servers.push(gateway('other', (await layOther(bench, resolve(against), 'other-streams')).ground))
  const points: StreamsPoint[] = []
  for (const sort of STREAMS) {
    for (const server of servers.filter(({ name }) => chosen(name).includes(sort))) {
      const name = streamsName(server.name, sort.streams)
      if (sort.streams * FILES + SPARE_FILES > openFilesLimit())
        say(`${name}: NOT MEASURED, too few files may be open: raise the limit with ulimit -n`)
      else {
        const figures = await measureOne(bench, server, sort)
        points.push({ server: server.name, ...sort, ...figures })
        const { cpuUs, lateP50, lateP99, errors } = figures
        say(`${name}: ${cpuUs?.toFixed(0)} µs an event, ${lateP50} and ${lateP99} µs late, ${errors} errors`)
      }
    }
  }
  return points
}

async function measureOne(
  { children, cores, plan, upstream }: Bench,
  { name, ground, start }: StreamServer,
  { streams, everyMs }: (typeof STREAMS)[number],
): Promise<StreamFigures> {
  const prepared = profiled(await start(ground, upstream.port), plan)
  const child = await children.start({ ...prepared, core: cores.measured })
  const clients = await children.start({
    name: `streams-clients-${name}-${streams}`,
    command: process.execPath,
    args: [join(import.meta.dirname, 'clients.ts')],
    core: cores.others,
    ipc: true,
  })
  const { ca, cert, key } = ground.allowed
  // A whole answer at least, of the quick ones: their first second is V8's compiler's.
  const warmupS = Math.max(plan.warmupS, 5)
  const job: StreamJob = {
    ...{ port: child.port, pid: child.pid, tls: { ca, cert, key }, streams, everyMs },
    ...{ warmupS, seconds: plan.seconds },
  }
  const limitMs = (warmupS + plan.seconds) * 1_000 + streams * OPEN_MS + GRACE_MS
  const answered = once(clients.process, 'message', { signal: AbortSignal.timeout(limitMs) })
  clients.process.send(job)
  try {
    // Only test/bench/streams/clients.ts speaks on this channel.
    const [figures] = (await answered) as [StreamFigures]
    return figures
  } catch (error) {
    throw new Error(`${name} did not serve ${streams} streams in time`, { cause: error })
  } finally {
    await clients.stop()
    await child.stop()
  }
}
