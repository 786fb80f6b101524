import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { proofSigner } from '../../../scripts/client/signing/proof.ts'
import type { Ground } from '../ground/ground.ts'
import { PROOF_PLACE, type Proofs, type Signing } from '../job.ts'
import type { JunkProof, Point } from '../points.ts'
import { MCP_PATH } from './mcp-messages.ts'
import { PATH } from './messages.ts'
import { PROOF_LIFE_MS } from './proof-supply.ts'
import { signIn } from './sign-in.ts'
import type { Share } from './sign-proofs.ts'

/** The proofs of a point's requests. */
export interface Proving {
  /** Lines of the request's head. */
  readonly headers: readonly string[]
  /** The proofs, one for each request. Null where every request is the same. */
  readonly proofs: Proofs | null
}

interface Target {
  readonly port: number
  readonly warmupS: number
  readonly seconds: number
  /** Answers after which it ends. */
  readonly enough?: number
}

/**
 * The proofs that are signed beforehand: a core verifies no more. Too few are no fault: the rest is signed on
 * the go.
 */
const PROOFS_PER_S = 9_000
/** The same for each connection, where there are few. */
const PROOFS_PER_S_AND_CONNECTION = 1_500
/** The length of a proof that is one byte more than the gateway looks at. */
const OVERSIZED = 8_193
const HOUR_MS = 3_600_000

/** Makes the proofs of a point's requests, right before it is measured. Null: it has none. */
export async function prove(point: Point, ground: Ground, target: Target): Promise<Proving | null> {
  if (!point.proof) return null
  const path = typeof point.kind === 'string' ? PATH : MCP_PATH
  const signing = await signIn(ground.proven, target.port, { path, token: point.token ?? false })
  if (point.proof !== 'fresh') {
    return { headers: [`dpop: ${junkProof(point.proof, signing)}`], proofs: null }
  }
  const headers = [`dpop: ${PROOF_PLACE}`]
  if (signing.accessToken !== null) headers.push(`authorization: DPoP ${signing.accessToken}`)
  const perSecond = Math.min(PROOFS_PER_S, point.connections * PROOFS_PER_S_AND_CONNECTION)
  const forS = Math.min(target.warmupS + target.seconds, PROOF_LIFE_MS / 1_000)
  // The oldest counts: it is sent first.
  const signedAt = Date.now()
  const count = Math.min(perSecond * forS, (target.enough ?? Number.POSITIVE_INFINITY) + point.connections)
  return { headers, proofs: { signed: await signMany(signing, count), signedAt, signing } }
}

/** Signs on all cores: nothing is measured meanwhile. */
async function signMany(signing: Signing, count: number): Promise<readonly string[]> {
  const threads = availableParallelism()
  const share: Share = { signing, count: Math.ceil(count / threads) }
  const shares = await Promise.all(Array.from({ length: threads }, () => signShare(share)))
  return shares.flat()
}

async function signShare(share: Share): Promise<readonly string[]> {
  const worker = new Worker(join(import.meta.dirname, 'sign-proofs.ts'), { workerData: share })
  // Its one message.
  const [signed] = (await once(worker, 'message')) as [readonly string[]]
  return signed
}

/** Makes one proof that is refused, each time it is sent. */
function junkProof(kind: JunkProof, { jwk, ...target }: Signing): string {
  const sign = proofSigner(jwk)
  const at = Date.now()
  const good = sign({ ...target, at })
  const [head = '', claims = '', signature = ''] = good.split('.')
  switch (kind) {
    case 'oversized proof':
      return good.padEnd(OVERSIZED, 'A')
    case 'other typ':
      // The signature is asked about only after the type, so it need not be made anew.
      return `${otherType(head)}.${claims}.${signature}`
    case 'stale iat':
      return sign({ ...target, at: at - HOUR_MS })
    case 'bad signature':
      return `${head}.${claims}.${signature.startsWith('A') ? 'B' : 'A'}${signature.slice(1)}`
    case 'replayed proof':
      return good
  }
}

function otherType(head: string): string {
  const text = Buffer.from(head, 'base64url').toString().replace('dpop+jwt', 'jwt')
  return Buffer.from(text).toString('base64url')
}
