import type { JsonWebKey } from 'node:crypto'
import type { ProofRequest } from '../../scripts/client/signing/proof.ts'

/** The text that stands in a request for the DPoP proof, of which each has its own. */
export const PROOF_PLACE = '{proof}'

/** The key that proofs are signed by, and the request that they are for. */
export interface Signing extends Omit<ProofRequest, 'at'> {
  readonly jwk: JsonWebKey
}

/** DPoP proofs, none of which is sent twice. */
export interface Proofs {
  /** Signed beforehand, in the order they are sent. */
  readonly signed: readonly string[]
  /** The instant at which their signing began. ms since the epoch. */
  readonly signedAt: number
  /** The means to sign more of them. */
  readonly signing: Signing
}

/** One job of the load generator, told in one process message. */
export interface Job {
  readonly port: number
  /** PEM texts; null for plain TCP. A null certificate: none is presented. */
  readonly tls: { readonly ca: string; readonly cert: string | null; readonly key: string | null } | null
  /** A whole HTTP request, sent again and again. */
  readonly request: string
  /** The proofs for the request's {@link PROOF_PLACE}. Null: it has none. */
  readonly proofs: Proofs | null
  /** The status that counts as right; any other is an error. */
  readonly expect: number
  /** An answer with a shorter body is an error: JSON-RPC has errors with status 200. */
  readonly leastBytes: number
  readonly connections: number
  /**
   * Requests per second of an open loop. Null: a closed loop, each connection sends as soon as it has its
   * answer.
   */
  readonly rate: number | null
  /** True where each request has a connection of its own, handshake included. */
  readonly reconnect: boolean
  readonly warmupS: number
  readonly seconds: number
  /** The number of answers after which it ends, however early. Null: it takes its whole time. */
  readonly enough: number | null
  /** The process that is measured: its processor time and memory are read. */
  readonly pid: number
}

/** One measured point. Times are µs. A figure is null where it cannot be had. */
export interface Measured {
  readonly requests: number
  readonly errors: number
  readonly perSecond: number
  /** The time from sending to the answer's last byte: median. */
  readonly p50: number
  readonly p99: number
  /** The time from sending to the first byte of the answer's body: median. */
  readonly firstP50: number
  readonly firstP99: number
  /** The processor time of the measured process, per request. */
  readonly cpuUs: number | null
  readonly rssMb: number | null
  /** The share of its core that the generator itself used. Near 1 it was the bottleneck. */
  readonly generatorBusy: number
}

export type FromGenerator =
  | { readonly kind: 'ready' }
  | { readonly kind: 'measured'; readonly measured: Measured }
  | { readonly kind: 'failed'; readonly message: string }
