import type { Child, Children, Cores } from './ground/children.ts'
import type { Ground } from './ground/ground.ts'
import type { Generator } from './load/generator.ts'

export interface Plan {
  readonly warmupS: number
  readonly seconds: number
  readonly rounds: number
  /** Only points whose `server/point c=N` holds this. */
  readonly only: string
  /** Only what the targets are judged by, and the rungs of the ladder. */
  readonly short: boolean
  /** The directory in which the LLM and MCP gateways of others are installed. */
  readonly peers: string | undefined
  /** Connections that hardly ask, and rows at a start; 0: not measured. Both take minutes. */
  readonly idle: number
  readonly startRows: number
  /** The decisions over which is rehearsed; 0: not measured. Takes minutes. */
  readonly rehearse: number
  /** The decisions of a ledger over which the dashboard is opened, and the rows that are sealed; 0: not measured. */
  readonly browse: number
  readonly seal: number
  /** The URL of the database on which PostgreSQL is measured. Undefined: it is not. */
  readonly postgres: string | undefined
  /**
   * The directory of the measured Node processes' processor profiles. Undefined: none are made, which costs
   * less.
   */
  readonly profileDir: string | undefined
}

export interface Bench {
  readonly plan: Plan
  readonly ground: Ground
  readonly children: Children
  readonly cores: Cores
  readonly upstream: Child
  readonly generator: Generator
  /** Says one line of progress. */
  readonly say: (line: string) => void
}
