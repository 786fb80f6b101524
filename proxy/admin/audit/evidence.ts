import { z } from 'zod'
import { countUnsealed, currentTree, newestCheckpoint, treeKeysOf } from '../../../db/ledger/tree/store.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import { notFound, unprocessableBody } from '../../../plugins/refusal.ts'
import { emptyOperation, readOperation } from '../operation/operation.ts'
import { anchorStanding, instant } from '../operation/shapes.ts'
import { throwLedgerRefusal } from './audit.ts'
import { packOf } from './pack.ts'
import { notSealed, scopeOf } from './scope.ts'

export const showLog = readOperation({
  name: 'getAuditLog',
  summary: 'Shows the newest checkpoint of the audit log, the rows after it, and how far each anchor is.',
  takes: {},
  output: z.strictObject({
    log: z
      .strictObject({
        origin: z.string(),
        key: z.string().meta({ description: 'The newest verifier key (C2SP signed-note).' }),
        size: z.int().min(1).meta({ description: 'The number of rows under the newest checkpoint.' }),
        root: z.string().meta({ description: 'base64.' }),
        signed_at: instant,
      })
      .nullable()
      .meta({ description: 'Null: nothing is sealed yet.' }),
    unsealed: z.int().min(0).meta({ description: 'The number of rows that no checkpoint covers yet.' }),
    sealing_stopped: z.boolean().meta({ description: 'True: rows wait, and no checkpoint is signed.' }),
    anchors: z.array(anchorStanding),
  }),
  run: async ({ database, anchors, sealing: { stopped } }) => {
    const { kysely } = database
    const tree = await currentTree(kysely)
    const newest = tree && (await newestCheckpoint(kysely, tree.tree))
    const [key] = tree ? await treeKeysOf(kysely, tree.tree) : []
    const log =
      tree && newest && key
        ? {
            ...{ origin: tree.origin, key: key.vkey },
            ...{ size: newest.size, root: newest.root, signed_at: newest.signed_at },
          }
        : null
    const unsealed = await countUnsealed(database)
    return { value: { log, unsealed, sealing_stopped: stopped, anchors: await anchors() } }
  },
})

const periodEdge = z
  .union([z.iso.datetime({ offset: true }), z.iso.date()])
  .transform((value) => new Date(value).toISOString())
  .meta({ description: 'RFC 3339, or a date, which means midnight in UTC.' })

/** GET /v1/admin/audit/evidence: the sealed rows of a period as a zip (docs/ledger.md#evidence). */
export const packEvidence = readOperation({
  name: 'packEvidence',
  demands: 'admin.audit',
  summary:
    'Packs the evidence of a period as a zip: rows, sets, grants, refusals, keys, checkpoints and verifiers.',
  takes: { query: z.strictObject({ since: periodEdge.exactOptional(), until: periodEdge.exactOptional() }) },
  output: z.custom<AsyncIterable<Uint8Array>>().meta({ type: 'string', format: 'binary' }),
  reasons: ['not_found', 'not_sealed_yet', 'sealing_stopped', 'overloaded'],
  media: 'application/zip',
  run: async (context, { query: { since = null, until = null } }, caller) => {
    const { at } = caller
    if (since !== null && until !== null && until <= since)
      throw unprocessableBody([{ field: 'until', message: 'must be later than since' }])
    const { signal } = caller.hangup
    const scope = await scopeOf(context.database, since, until, signal).catch(throwLedgerRefusal)
    if (!scope) throw notSealed(context.sealing)
    const open = async (signal: AbortSignal) => packOf(context, scope, at, signal)
    return { value: await context.ledgerPlaces.stream('evidence', caller, open) }
  },
})

export const reviewAudit = emptyOperation({
  name: 'reviewAudit',
  demands: 'admin.audit',
  action: 'audit.reviewed',
  summary: 'Records that the caller has reviewed a period of the ledger under a checkpoint.',
  takes: {
    body: z.strictObject({
      since: periodEdge,
      until: periodEdge,
      checkpoint: z.int().min(1).meta({ description: 'The size of the checkpoint that was verified.' }),
      note: z.string().max(1_000).exactOptional(),
    }),
  },
  harmless: true,
  reasons: ['not_found'],
  example: { since: '2026-01-01T00:00:00Z', until: '2026-04-01T00:00:00Z', checkpoint: 1 },
  run: async ({ database, ledger, configDigest }, { body }, { id, at, actor }) => {
    const { since, until, checkpoint: size, note } = body
    if (until <= since) throw unprocessableBody([{ field: 'until', message: 'must be later than since' }])
    const stored = await database.kysely
      .selectFrom('audit_checkpoints')
      .select(['tree', 'root'])
      .where('size', '=', size)
      .orderBy('tree', 'desc')
      .limit(1)
      .executeTakeFirst()
    if (!stored)
      throw notFound(`No checkpoint of ${size} rows was signed. GET /v1/admin/log names the newest.`)
    const detail = {
      since,
      until,
      checkpoint: { size, root: stored.root },
      via: actor.via,
      ...(note !== undefined && { note }),
    }
    const entry = { ...noteEntry({ action: 'audit.reviewed', detail }, at, configDigest), request_id: id }
    await ledger.commit({ entries: [{ ...entry, principal_id: actor.id, principal_type: 'operator' }] })
  },
})
