import { z } from 'zod'
import type { RefusalReason } from '../../plugins/refusal.ts'
import { KNOWN_CALLER_REASONS, type RouteDoc } from '../http/doc.ts'

const HEADERS = {
  DPoP: 'A proof of possession (RFC 9449), if the mode requires one.',
  'X-Admin-Secret': 'The operator secret, instead of a certificate.',
}

/** The reasons of readers: holders of certificates, and operators by any of their doors. */
const READ: readonly RefusalReason[] = [...KNOWN_CALLER_REASONS, 'admin_secret_invalid', 'admin_throttled']

const TEXT = 'text/plain; charset=utf-8'

const read = (
  name: string,
  summary: string,
  answer: RouteDoc['answers'][number],
  ...reasons: readonly RefusalReason[]
): RouteDoc => ({
  name,
  summary,
  caller: 'principal',
  headers: HEADERS,
  answers: { 200: answer },
  reasons: [...READ, ...reasons],
})

/** GET /v1/audit/key */
export const KEY = read('getAuditKey', 'Shows the key that verifies checkpoints of the audit log.', {
  description: 'A verifier key (C2SP signed-note).',
  content: [{ media: TEXT, schema: z.string() }],
})

/** GET /v1/audit/checkpoint */
export const CHECKPOINT: RouteDoc = {
  ...read(
    'getAuditCheckpoint',
    'Shows the newest signed checkpoint of the audit log, or the one of a size.',
    {
      description: 'A signed note (C2SP tlog-checkpoint), with its cosignatures, if any.',
      content: [{ media: TEXT, schema: z.string() }],
    },
    'not_found',
    'not_sealed_yet',
    'sealing_stopped',
  ),
  query: z.strictObject({
    size: z.string().exactOptional().meta({ description: 'The number of rows under it.' }),
  }),
}

/** GET /v1/audit/tile/… */
export const TILE = read(
  'getAuditTile',
  'Shows a tile of the audit log (C2SP tlog-tiles). Bundles of entries require admin.audit.',
  {
    description: 'Hashes of 32 bytes, one after the other; for `entries`, leaves, each after its length.',
    content: [{ media: 'application/octet-stream', schema: z.string().meta({ format: 'binary' }) }],
  },
  'not_found',
  'capability_missing',
)

const proven = z.strictObject({
  leaf: z.string().meta({ description: 'The exact bytes, as text.' }),
  stream: z.string(),
  seq: z.int().min(1),
  proof: z.string().meta({ description: 'C2SP tlog-proof, against the newest checkpoint.' }),
})

/** GET /v1/audit/proofs/{request_id} */
export const PROOFS = read(
  'getAuditProofs',
  "Proves the rows of one of the caller's own calls: its decision, then its outcome.",
  {
    description: 'The rows, each with its proof, and what opens their commitments.',
    content: [
      {
        schema: z.strictObject({
          rows: z.array(proven),
          salts: z.record(z.string(), z.string()).meta({ description: 'Hex, by the member of detail.' }),
        }),
      },
    ],
  },
  'not_found',
  'not_sealed_yet',
  'sealing_stopped',
)
