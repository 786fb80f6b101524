import { z } from 'zod'
import { MalformedNote, parseVerifierKey } from '../../db/ledger/tree/note.ts'
import { isGuardedUrl } from '../boot/networks.ts'

/** https, or http on this machine alone. */
const web = z
  .string()
  .max(2048)
  .refine(isWeb, 'must be an https URL, or an http URL of this machine, without credentials or fragment')

function isWeb(text: string): boolean {
  const url = URL.parse(text)
  if (!url || url.username || url.password || /[#\s]/.test(text)) return false
  return isGuardedUrl(url)
}

function isWitnessKey(text: string): boolean {
  try {
    return parseVerifierKey(text).kind === 'witness'
  } catch (error) {
    if (error instanceof MalformedNote) return false
    throw error
  }
}

const KINDS = ['file', 'url', 'witness', 'timestamp'] as const

const anchor = z
  .strictObject({
    file: z.string().min(1).max(4096).exactOptional().describe('A file that checkpoints are appended to.'),
    url: web.exactOptional().describe('Where checkpoints are posted to, as text.'),
    witness: web
      .refine((text) => !text.includes('?'), 'must have no query: paths are joined to it')
      .exactOptional()
      .describe('The prefix of a witness (C2SP tlog-witness), which cosigns.'),
    key: z
      .string()
      .max(1024)
      .refine(isWitnessKey, 'must be the verifier key of a witness: <name>+<id>+<base64>')
      .exactOptional()
      .describe('The verifier key of the witness.'),
    timestamp: web.exactOptional().describe('A time-stamping authority (RFC 3161).'),
  })
  .refine(
    (given) => KINDS.filter((kind) => kind in given).length === 1,
    'must name one of file, url, witness, timestamp',
  )
  .refine(
    (given) => 'witness' in given === 'key' in given,
    'a witness needs its key, and nothing else has one',
  )

/** The options of the `proofs` file (docs/operating.md#anchors). */
export const proofsOptions = z.strictObject({
  seal_interval_ms: z
    .int()
    .min(100)
    .max(60_000)
    .default(1_000)
    .describe('The time between two checkpoints while rows come. ms. Default 1,000.'),
  anchors: z
    .array(anchor)
    .max(16)
    .default([])
    .refine((all) => new Set(all.map((one) => JSON.stringify(one))).size === all.length, 'names one twice')
    .describe('The anchors, which keep checkpoints elsewhere. Default none.'),
})

export type ProofsOptions = z.infer<typeof proofsOptions>
export type AnchorOption = ProofsOptions['anchors'][number]
