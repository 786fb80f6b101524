import { hash, randomBytes } from 'node:crypto'
import { resolve } from 'node:path'
import { Integer, OctetString } from 'asn1js'
import { AlgorithmIdentifier, MessageImprint, TimeStampReq } from 'pkijs'
import { verifyStamp } from '../../../certs/timestamps/signature.ts'
import { readStamp, SHA_256, StampError } from '../../../certs/timestamps/stamp.ts'
import { parseVerifierKey } from '../../../db/ledger/tree/note.ts'
import type { AnchorOption } from '../options.ts'
import type { CheckpointAnchor } from './anchor.ts'
import { fileAnchor } from './file.ts'
import { type PostToAnchor, urlAnchor, webAnchorName } from './web.ts'
import { witnessAnchor } from './witness.ts'

/**
 * A time-stamping authority (RFC 3161): says when it has seen the signed text of a checkpoint. Its
 * certificate is NOT checked here: the verifier names the CA (docs/ledger.md#stamps).
 */
const timestampAnchor = (url: string, post: PostToAnchor): CheckpointAnchor => ({
  name: webAnchorName('timestamp', url),
  // Authorities are slow, and count their stamps; each vouches for all rows before it.
  everyMs: 60_000,
  keep: async ({ text }, signal) => {
    const digest = hash('sha256', text, 'buffer')
    // Positive, and so in its shortest form.
    const nonce = Buffer.concat([Buffer.of(1), randomBytes(8)])
    const { status, body } = await post(url, 'application/timestamp-query', requestOf(digest, nonce), signal)
    if (status !== 200) throw new Error(`it answered ${status}`)
    check(body, digest, nonce)
    return body.toString('base64')
  },
})

function requestOf(digest: Buffer, nonce: Buffer): Buffer {
  const request = new TimeStampReq({
    version: 1,
    messageImprint: new MessageImprint({
      hashAlgorithm: new AlgorithmIdentifier({ algorithmId: SHA_256 }),
      hashedMessage: new OctetString({ valueHex: arrayOf(digest) }),
    }),
    nonce: new Integer({ valueHex: arrayOf(nonce) }),
    certReq: true,
  })
  return Buffer.from(request.toSchema().toBER())
}

/**
 * Verifies an answer as far as that goes without a CA to trust: it is a time stamp of this digest, made for
 * this request, and signed by the certificate in it. Throws one sentence.
 */
function check(answer: Buffer, digest: Buffer, nonce: Buffer): void {
  try {
    const stamp = readStamp(answer)
    if (!stamp.imprint.equals(digest) || !stamp.nonce.equals(nonce))
      throw new StampError('is of something else')
    verifyStamp(stamp)
  } catch (error) {
    if (!(error instanceof StampError)) throw error
    throw new Error(`its time stamp ${error.message}`, { cause: error })
  }
}

const arrayOf = (bytes: Buffer): ArrayBuffer => Uint8Array.from(bytes).buffer

/** The anchor that a file of the operator names. */
export function anchorOf(
  { file, url, witness, key, timestamp }: AnchorOption,
  post: PostToAnchor,
): CheckpointAnchor {
  if (file !== undefined) return fileAnchor(resolve(file))
  if (url !== undefined) return urlAnchor(url, post)
  if (witness !== undefined && key !== undefined) return witnessAnchor(witness, parseVerifierKey(key), post)
  if (timestamp !== undefined) return timestampAnchor(timestamp, post)
  // The schema lets no other one through.
  throw new Error('an anchor without a place')
}

/** The name of an anchor, as its state is stored by. */
export const anchorName = (option: AnchorOption): string => anchorOf(option, NOWHERE).name

const NOWHERE: PostToAnchor = () => Promise.reject(new Error('nothing is posted'))

/** The files among the anchors. */
export const anchorFiles = (options: readonly AnchorOption[]): readonly string[] =>
  options.flatMap(({ file }) => (file === undefined ? [] : [resolve(file)]))
