import { readdirSync, readFileSync, statSync } from 'node:fs'
import {
  ConnectionLimit,
  type ConnectionLimits,
  type ConnectionOutcome,
  UNLIMITED_CONNECTIONS,
} from '../tls/connection-limit.ts'

/** The descriptors that are neither of a client's connection nor of its call. */
const RESERVED_DESCRIPTORS = 96
/** Connections of a listener of administration alone, which the runtime's clients cannot take. */
const ADMIN_CONNECTIONS = 16
/** The fewest connections of a gateway, whatever its limit. */
const MIN_CONNECTIONS = 16
/** Calls that may run alongside others on one connection (pipelining), as a share of all connections. */
const PIPELINED_SHARE = 1 / 4

/** Reads how many descriptors this process may open (RLIMIT_NOFILE). Null: not known, or without limit. */
export function readDescriptorLimit(): number | null {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? []
    return soft === undefined ? null : Number(soft)
  } catch {
    // Not Linux.
    return null
  }
}

/** Counts the open descriptors; null: not known. `limit`: the count if none is left to look with. */
export function countOpenDescriptors(limit: number | null): number | null {
  try {
    // Linux 6.2 and newer: their number. Older ones say 0.
    return statSync('/proc/self/fd').size || readdirSync('/proc/self/fd').length - 1
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EMFILE' ? limit : null
  }
}

export interface ConnectionShares {
  readonly runtime: ConnectionLimits
  readonly admin: ConnectionLimits
}

/** Shares the descriptors out: each client's connection has another one for its call. */
export function connectionShares(limit: number | null, hasAdminListener: boolean): ConnectionShares {
  if (limit === null) return { runtime: UNLIMITED_CONNECTIONS, admin: UNLIMITED_CONNECTIONS }
  const left = limit - RESERVED_DESCRIPTORS - (hasAdminListener ? 2 * ADMIN_CONNECTIONS : 0)
  const most = Math.max(MIN_CONNECTIONS, Math.floor(left / (2 + PIPELINED_SHARE)))
  return {
    runtime: { maxConnections: most, maxPipelined: Math.floor(most * PIPELINED_SHARE) },
    admin: { maxConnections: ADMIN_CONNECTIONS, maxPipelined: 0 },
  }
}

/** The time for which readiness remembers that all places were taken. ms. */
const REMEMBERED_MS = 60_000
/** A start warns of fewer connections than this. */
const FEW_CONNECTIONS = 256
const SCARCE_SHARE = 0.9

/** The descriptors of the process, and the part of them for its clients' connections. */
export class FileDescriptors {
  readonly limit: number | null
  readonly connectionLimits: Readonly<Record<keyof ConnectionShares, ConnectionLimit>>

  /** `onFull`: called with each connection that comes when all places are taken. */
  constructor(
    hasAdminListener: boolean,
    limit: number | null = null,
    onFull: (outcome: ConnectionOutcome) => void = () => {},
  ) {
    this.limit = limit
    const { runtime, admin } = connectionShares(limit, hasAdminListener)
    this.connectionLimits = {
      runtime: new ConnectionLimit(runtime, onFull),
      admin: new ConnectionLimit(admin, onFull),
    }
  }

  get open(): number | null {
    return countOpenDescriptors(this.limit)
  }

  get connections(): number {
    return this.connectionLimits.runtime.open
  }

  get mostConnections(): number {
    return this.connectionLimits.runtime.limits.maxConnections
  }

  /** True while few are left, and for a minute after a connection found no place. */
  get low(): boolean {
    const { runtime, admin } = this.connectionLimits
    const wasFull = runtime.wasFull(REMEMBERED_MS) || admin.wasFull(REMEMBERED_MS)
    return wasFull || (this.limit !== null && (this.open ?? 0) > SCARCE_SHARE * this.limit)
  }

  /** True: hardly a gateway has so few clients. */
  get isScarce(): boolean {
    return this.mostConnections < FEW_CONNECTIONS
  }

  get logFields(): {
    readonly descriptors: number | 'unlimited'
    readonly connections: number | 'unlimited'
  } {
    const { limit } = this
    return limit === null
      ? { descriptors: 'unlimited', connections: 'unlimited' }
      : { descriptors: limit, connections: this.mostConnections }
  }
}
