// Signs proofs in a thread of its own: the number and the key are its workerData, the proofs are its one
// message.
import { parentPort, workerData } from 'node:worker_threads'
import { proofSigner } from '../../../scripts/client/signing/proof.ts'
import type { Signing } from '../job.ts'

/** The work of one thread. */
export interface Share {
  readonly signing: Signing
  readonly count: number
}

// Only test/bench/load/proving.ts starts this.
const { signing, count } = workerData as Share
const { jwk, ...target } = signing
const sign = proofSigner(jwk)
parentPort?.postMessage(Array.from({ length: count }, () => sign({ ...target, at: Date.now() })))
