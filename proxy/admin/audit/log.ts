import { z } from 'zod'
import { countUnsealed, currentTree, newestCheckpoint, treeKeysOf } from '../../../db/ledger/tree/store.ts'
import { operation } from '../operation/operation.ts'
import { anchorStanding, instant } from '../operation/shapes.ts'

export const showLog = operation({
  name: 'getAuditLog',
  demands: 'admin.read',
  action: 'admin.read',
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
    anchors: z.array(anchorStanding),
  }),
  status: 200,
  reasons: [],
  run: async ({ database, anchors }) => {
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
    return { value: { log, unsealed: await countUnsealed(database), anchors: await anchors() } }
  },
})
