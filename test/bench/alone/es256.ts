// Measures how much one core can verify at most, and the cost of checking a proof without a server around it.
// Usage: node es256.ts SECONDS
import { createPublicKey, verify } from 'node:crypto'
import { derOf } from '../../../plugins/dpop/key.ts'
import { checkProof } from '../../../plugins/dpop/proof.ts'
import { newDpopKey, publicDpopJwk } from '../../../scripts/client/signing/dpop-key.ts'
import { proofSigner } from '../../../scripts/client/signing/proof.ts'

export interface Speed {
  readonly perSecond: number
  /** Processor time of one. */
  readonly cpuUs: number
}

/** The answer, as one line of JSON on standard output. */
export interface Es256 {
  /** `crypto.verify` alone: the key imported, the signature in DER. */
  readonly bare: Speed
  /** The gateway's whole check of a proof whose key it knows, without the claim that it is new. */
  readonly proof: Speed
}

const SAMPLES = 256
const URL = 'https://localhost/v1/chat/completions'
const WARM_UP = 0.2

const seconds = Number(process.argv[2] ?? '2')
const at = Date.now()
const jwk = newDpopKey()
const sign = proofSigner(jwk)
const samples = Array.from({ length: SAMPLES }, () =>
  sign({ method: 'POST', url: URL, accessToken: null, nonce: 'n', at }),
)
const speeds: Es256 = { bare: measure(bareCheck()), proof: measure(proofCheck()) }
process.stdout.write(`${JSON.stringify(speeds)}\n`)

function bareCheck(): (index: number) => boolean {
  const key = createPublicKey({ key: publicDpopJwk(jwk), format: 'jwk' })
  const parts = samples.map((proof) => {
    const end = proof.lastIndexOf('.')
    return {
      text: Buffer.from(proof.slice(0, end)),
      der: derOf(Buffer.from(proof.slice(end + 1), 'base64url')),
    }
  })
  return (index) => {
    const part = parts[index]
    return part !== undefined && verify('sha256', part.text, key, part.der)
  }
}

function proofCheck(): (index: number) => boolean {
  const target = { method: 'POST', urls: new Set([URL]), at, accessToken: null, isFresh: () => true }
  return (index) => checkProof(samples[index] ?? '', target).jkt !== ''
}

function measure(check: (index: number) => boolean): Speed {
  run(check, seconds * WARM_UP)
  const before = process.cpuUsage()
  const { count, tookS } = run(check, seconds)
  const { user, system } = process.cpuUsage(before)
  return { perSecond: count / tookS, cpuUs: (user + system) / count }
}

function run(check: (index: number) => boolean, lengthS: number): { count: number; tookS: number } {
  const startedAt = performance.now()
  let count = 0
  let tookS = 0
  while (tookS < lengthS) {
    for (let index = 0; index < SAMPLES; index += 1) {
      if (!check(index)) throw new Error('a good signature did not hold')
    }
    count += SAMPLES
    tookS = (performance.now() - startedAt) / 1_000
  }
  return { count, tookS }
}
