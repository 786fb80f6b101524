import type { Measured } from './job.ts'

/** One measured point of one server. */
export interface Row extends Measured {
  readonly server: string
  readonly point: string
  readonly connections: number
  /**
   * 99th percentile of the event loop's delay while it ran, as a gateway itself says. ms. Null for other
   * servers.
   */
  readonly loopP99Ms: number | null
}

export interface Ask {
  readonly server: string
  readonly point: string
  /** Default: the first of that server and point. */
  readonly connections?: number
}

/** One row of the results, or undefined where it was not measured. */
export const rowOf = (rows: readonly Row[], { server, point, connections }: Ask): Row | undefined =>
  rows.find(
    (row) =>
      row.server === server &&
      row.point === point &&
      (connections === undefined || row.connections === connections),
  )
