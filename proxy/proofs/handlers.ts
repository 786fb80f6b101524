import type { Database } from '../../db/database.ts'
import { segmentOfLeaf } from '../../db/ledger/tree/segments.ts'
import {
  checkpointOfSize,
  currentTree,
  newestCheckpoint,
  noteOfCheckpoint,
} from '../../db/ledger/tree/store.ts'
import type { UnknownRecord } from '../../db/support/json.ts'
import type { ProofReader } from '../../plugins/operators/proof-reader.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { saltsOf, throwLedgerRefusal } from '../admin/audit/audit.ts'
import { archivedRefusal, notSealed } from '../admin/audit/scope.ts'
import type { AdminContext } from '../admin/operation/context.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import type { LogKeys } from './log-keys.ts'
import { proveRows, rowsOfRequest } from './request-proof.ts'
import { parseTilePath, readEntries, readTreeTile } from './tiles.ts'

interface ProofDependencies {
  readonly database: Database
  readonly keys: Pick<LogKeys, 'verifierKey'>
  readonly subjectKeys: AdminContext['subjectKeys']
  readonly sealing: AdminContext['sealing']
}

type ProofReaderFacts = Arrival & ProofReader

/** Makes the handlers of `/v1/audit/*` (docs/protocol.md#audit-proofs). */
export function proofHandlers(sources: ProofDependencies) {
  const { database, keys } = sources
  return {
    /** GET /v1/audit/key: the verifier key of the log. */
    key: async (): Promise<Reply> => text(`${await keys.verifierKey()}\n`),
    /** GET /v1/audit/checkpoint: the newest, or the one of `?size=`. */
    checkpoint: async ({ query }: ProofReaderFacts): Promise<Reply> => text(await checkpoint(sources, query)),
    /** GET /v1/audit/tile/…: a tile, or a bundle of entries. */
    tile: async ({ path, auditor }: ProofReaderFacts): Promise<Reply> => tile(database, path, auditor),
    /**
     * GET /v1/audit/proofs/{request_id}: the rows of a request with their proofs, and the salts of their
     * commitments.
     */
    proofs: async (reading: ProofReaderFacts): Promise<Reply> => proofsOf(sources, reading),
  }
}

export type ProofHandlers = ReturnType<typeof proofHandlers>

const text = (body: string): Reply => ({
  status: 200,
  headers: { 'content-type': 'text/plain; charset=utf-8' },
  body,
})

async function checkpoint(
  { database: { kysely }, sealing }: ProofDependencies,
  query: string,
): Promise<string> {
  const tree = await currentTree(kysely)
  const asked = new URLSearchParams(query).get('size')
  const size = asked !== null && /^[1-9][0-9]{0,15}$/.test(asked) ? Number(asked) : null
  if (!tree || (asked !== null && size === null)) throw new Refusal('not_found')
  const found =
    size === null ? newestCheckpoint(kysely, tree.tree) : checkpointOfSize(kysely, tree.tree, size)
  const stored = await found
  const segment = stored || size === null ? undefined : await segmentOfLeaf(kysely, size - 1)
  if (segment) throw archivedRefusal(segment)
  if (!stored) throw asked === null ? notSealed(sealing) : new Refusal('not_found')
  return noteOfCheckpoint(kysely, tree, stored)
}

const PREFIX = '/v1/audit/tile/'

/** Sealed rows never change. Only the asker keeps the answer: the way to it is authenticated. */
const FOR_EVER = { 'cache-control': 'private, max-age=31536000, immutable' }

async function tile(database: Database, path: string, auditor: boolean): Promise<Reply> {
  const asked = parseTilePath(path.slice(PREFIX.length))
  if (!asked) throw new Refusal('not_found')
  const { level, n, width } = asked
  if (level === null && !auditor)
    throw new Refusal('capability_missing', { detail: { required_capability: 'admin.audit' } })
  const bytes =
    level === null
      ? await readEntries(database, { n, width })
      : await readTreeTile(database, { level, n, width })
  if (!bytes) throw new Refusal('not_found')
  return { status: 200, headers: { 'content-type': 'application/octet-stream', ...FOR_EVER }, body: bytes }
}

async function proofsOf(
  { database, subjectKeys, sealing }: ProofDependencies,
  { params, ref, auditor, hangup }: ProofReaderFacts,
): Promise<Reply> {
  const id = params.request_id ?? ''
  // Another's rows are not there for the asker.
  if (!auditor && ref === null) throw new Refusal('not_found')
  const asked = { id, principal: auditor ? null : ref, signal: hangup.signal }
  const { rows, unreadable } = await rowsOfRequest(database, asked).catch(throwLedgerRefusal)
  if (rows.length === 0)
    throw new Refusal('not_found', unreadable.length > 0 ? { message: unreadable.join(' ') } : {})
  const proven = await proveRows(database, rows).catch(throwLedgerRefusal)
  if (!proven) throw notSealed(sealing)
  const salts: Record<string, string> = {}
  for (const { leaf, principal_id } of rows) {
    // Proven by the ledger: a leaf is the JSON of an object with a detail.
    const { detail } = JSON.parse(leaf) as { readonly detail: UnknownRecord }
    Object.assign(salts, await saltsOf({ principal_id, request_id: id, detail }, subjectKeys))
  }
  return jsonReply(200, { rows: proven, salts })
}
