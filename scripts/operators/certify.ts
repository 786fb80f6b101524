import { createPrivateKey, generateKeyPairSync, hash, type KeyObject } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { writePrivateFile } from '../../certs/authority/key-store.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { writeGateway, writeTrust } from '../admin/whereabouts.ts'
import { readPrivateSync, writePrivateOnceSync } from '../client/identity/private-file.ts'
import { certificateRequest } from '../client/renewal/certificate-request.ts'
import { nextKey, putNext, settleNext } from '../client/renewal/files.ts'
import { dpopKeyIn, publicDpopJwk } from '../client/signing/dpop-key.ts'
import { UnfinishedChange } from '../command.ts'
import type { OperatorView } from './operators.ts'

const KEY = 'agent.key'
const CERT = 'agent.crt'

export interface OperatorCertification {
  readonly operator: OperatorView
  readonly directory: string
  /** The URL that its `gateway.json` says. */
  readonly url: string
  /** The grace of the certificate before. Absent: as configured. */
  readonly hours?: { readonly grace_hours?: number }
}

/**
 * Makes an operator's identity directory whole: its keys never leave it. One with a certificate gets a new
 * one; an unfinished one is gone on with. Throws an `UnfinishedChange` if a step waits for a second operator.
 */
export async function certifyOperator(
  call: AdminCall,
  { operator, directory, url, hours }: OperatorCertification,
): Promise<void> {
  const { principal_id: id } = operator
  const path = `/v1/admin/operators/${encodeURIComponent(id)}`
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await settleNext(directory)
  await writeTrust(call, directory)
  const jwk = publicDpopJwk(dpopKeyIn(directory))
  await writeGateway(directory, url, id)
  // RFC 7638: of the members in their order.
  if (operator.dpop_jkt !== hash('sha256', JSON.stringify(jwk), 'base64url')) {
    const again = `then run once more: sallyport operator rotate ${operator.operator_name} --out ${directory}`
    await withNextStep(again, async () => expectStatus(await call('POST', `${path}/dpop-jwk`, jwk), 200))
  }
  const handOver = `the operator who confirms gets the certificate: save it as ${join(directory, CERT)}`
  const { key, put } = await place(directory)
  const { cert_chain_pem: chain } = await withNextStep(handOver, async () =>
    expectStatus(
      await call('POST', `${path}/certificate`, { csr_pem: certificateRequest(key), ...hours }),
      200,
    ),
  )
  await put(String(chain))
}

/** Does work; if it waits for a second operator the sentence names the next step. */
export async function withNextStep<T>(then: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw error instanceof UnfinishedChange
      ? new UnfinishedChange(`${error.message}; ${then}`, { cause: error })
      : error
  }
}

interface NextCertificate {
  readonly key: KeyObject
  readonly put: (chainPem: string) => Promise<void>
}

async function place(directory: string): Promise<NextCertificate> {
  if (holdsIdentity(directory))
    return { key: await nextKey(directory), put: (chain) => putNext(directory, chain) }
  const path = join(directory, KEY)
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  writePrivateOnceSync(path, String(privateKey.export({ type: 'pkcs8', format: 'pem' })))
  const key = createPrivateKey(readPrivateSync(path) ?? '')
  return { key, put: (chain) => writePrivateFile(join(directory, CERT), chain) }
}

export const holdsIdentity = (directory: string): boolean => existsSync(join(directory, CERT))
