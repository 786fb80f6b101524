import type { Registry } from 'prom-client'
import type { Settings } from '../boot/settings.ts'

/** How often a worker says that its event loop turns. ms. */
export const BEAT_MS = 1_000

/** The descriptor of a worker's channel for its half of a SQLite database. */
export const DATABASE_FD = 4

/** The metrics of one process. */
export type Measured = Awaited<ReturnType<Registry['getMetricsAsJSON']>>

/** What a worker is told at its start. */
export interface Orders {
  /** As the process above has read them; the ports, once they are known, as they are. */
  readonly settings: Settings
  /** From 1 on: who takes the place of a worker has its number. */
  readonly number: number
  /** True: nobody else has begun. This worker writes the rows of the start. */
  readonly first: boolean
  /** The file mode mask to go back to: that of the process above is narrower. */
  readonly umask: number
}

/** What a worker says once it serves. */
export interface Serving {
  readonly url: string
  readonly adminUrl: string
  /** What the operator should know, as plain lines. */
  readonly told: string
}

/** Who writes the row of a reload, and who logs and counts it. */
export interface Share {
  readonly records: boolean
  readonly reports: boolean
}

export interface Rejection extends Share {
  readonly problem: string
}

/** What a worker is told when it may go on. */
export interface Agreement {
  /** The path of the control socket of all. */
  readonly controlPath: string
  /** True: nobody has written the row of its configuration. */
  readonly records: boolean
}

/** What is asked of a worker. */
export interface OfWorker {
  readonly start: (orders: Orders) => void
  /** First step of a reload: reads and checks everything. Returns the digest. Throws what is wrong. */
  readonly load: (value: null) => Promise<string>
  /** Second step. Rejects where the row could not be written. */
  readonly record: (value: null) => Promise<void>
  /** Third step, which cannot fail. */
  readonly swap: (share: Share) => Promise<void>
  /** In place of the second or third step: all stays as it was. */
  readonly reject: (rejection: Rejection) => Promise<void>
  readonly measure: (value: null) => Promise<Measured>
  /** Drains and ends. The second time it cuts what is under way. `null`: the time that the settings give it. ms. */
  readonly stop: (graceMs: number | null) => Promise<void>
}

/** What a worker asks of the process above it. */
export interface OfParent {
  /** Says which configuration it has loaded; resolves when it may go on. */
  readonly agree: (digest: string) => Promise<Agreement>
  readonly serving: (serving: Serving) => void
  /** That its event loop turns. */
  readonly beat: (value: null) => void
  /** That it writes no more rows. Resolves with whether it is the last one. */
  readonly ending: (value: null) => Promise<boolean>
  /** Resolves with the metrics of all workers, as Prometheus text. */
  readonly metrics: (value: null) => Promise<string>
}
