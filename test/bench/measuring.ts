import type { Child } from './ground/children.ts'
import type { Ground } from './ground/ground.ts'
import type { Measured } from './job.ts'
import { jobOf } from './job-of.ts'
import type { McpPlace } from './load/mcp-messages.ts'
import { prove } from './load/proving.ts'
import type { Point } from './points.ts'
import type { Bench } from './workbench.ts'

/**
 * The load before the first point of a sort, of which nothing counts: below some 15,000 requests the figures
 * are those of V8's compiler. Who is slow gets a third of a minute.
 */
const PRIMING = { warmupS: 0, seconds: 20, enough: 15_000 }

/** A server that runs. */
export interface Running {
  readonly child: Pick<Child, 'port' | 'pid'>
  /** The ground whose agents ask it. */
  readonly ground: Ground
  /** False: plain TCP. */
  readonly tls: boolean
  /** Lines added to the head of each request. */
  readonly headers?: readonly string[]
  /** Where tools are called, where it is not our gateway and not the MCP server. */
  readonly mcp?: McpPlace | undefined
  /** Its load before the first point that names no other. */
  readonly prime: Point
}

/** How a point is measured, where not as the run's plan has it. */
export interface Manner {
  readonly warmupS?: number
  readonly seconds?: number
  readonly enough?: number
  /** Requests per second, of an open loop. Default: what the point says. */
  readonly rate?: number
  /** Done last, right before the load. */
  readonly before?: () => Promise<unknown>
}

/** Measures a point, after its unmeasured load where it is the first of its sort. */
export type Measure = (point: Point, manner?: Manner) => Promise<Measured>

/** Makes the function that measures the points of one server. */
export function measuring({ generator, plan }: Bench, running: Running): Measure {
  const { child, ground, tls, headers = [], mcp, prime } = running
  const primed = new Set<Point>()
  const load = async (point: Point, { before, rate, ...times }: Manner): Promise<Measured> => {
    const { warmupS, seconds } = plan
    const loaded = { port: child.port, pid: child.pid, tls, mcp, warmupS, seconds, ...times }
    const asked = { ...point, headers: [...headers, ...(point.headers ?? [])], ...(rate && { rate }) }
    const proving = await prove(point, ground, loaded)
    await before?.()
    return generator.measure(jobOf(asked, ground, loaded, proving))
  }
  return async (point, manner = {}) => {
    const first = point.prime ?? prime
    if (!point.unprimed && !primed.has(first)) {
      primed.add(first)
      await load(first, PRIMING)
    }
    return load(point, manner)
  }
}
