import { hash, randomBytes } from 'node:crypto'
import { Integer, OctetString } from 'asn1js'
import { AlgorithmIdentifier, MessageImprint, SignedData, TimeStampReq, TimeStampResp, TSTInfo } from 'pkijs'
import { messageOf } from '../../../db/error-message.ts'
import type { Anchor } from './anchor.ts'
import type { PostTo } from './web.ts'

const SHA_256 = '2.16.840.1.101.3.4.2.1'

/** A time-stamping authority (RFC 3161): says when it has seen the signed text of a checkpoint. */
export const timestampAnchor = (url: string, post: PostTo): Anchor => ({
  name: `timestamp:${url}`,
  // Authorities are slow, and count their stamps; each vouches for all rows before it.
  everyMs: 60_000,
  keep: async ({ text }, signal) => {
    const digest = hash('sha256', text, 'buffer')
    // Positive, and so in its shortest form.
    const nonce = Buffer.concat([Buffer.of(1), randomBytes(8)])
    const { status, body } = await post(url, 'application/timestamp-query', requestOf(digest, nonce), signal)
    if (status !== 200) throw new Error(`it answered ${status}`)
    const { imprint, nonce: said } = stampIn(body)
    if (!imprint.equals(digest) || !said.equals(nonce)) throw new Error('its time stamp is of something else')
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

/** What a time stamp says: of which digest, when, and in answer to which request. */
export interface Stamp {
  readonly imprint: Buffer
  /** RFC 3339. */
  readonly at: string
  readonly nonce: Buffer
}

/** Reads a TimeStampResp. Does NOT verify its signature. Throws one sentence where it is none, or says no. */
export function stampIn(bytes: Buffer): Stamp {
  try {
    const response = TimeStampResp.fromBER(arrayOf(bytes))
    if (response.status.status > 1 || !response.timeStampToken)
      throw new Error(`it was refused with status ${response.status.status}`)
    const signed = new SignedData({ schema: response.timeStampToken.content })
    const content = signed.encapContentInfo.eContent?.getValue()
    if (!content) throw new Error('it has no content')
    const { messageImprint, genTime, nonce } = TSTInfo.fromBER(content)
    return {
      imprint: Buffer.from(messageImprint.hashedMessage.getValue()),
      at: genTime.toISOString(),
      nonce: Buffer.from(nonce?.valueBlock.valueHexView ?? []),
    }
  } catch (error) {
    throw new Error(`what it answered is no time stamp: ${messageOf(error)}`, { cause: error })
  }
}

const arrayOf = (bytes: Buffer): ArrayBuffer => Uint8Array.from(bytes).buffer
