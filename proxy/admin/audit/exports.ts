import { z } from 'zod'
import { notFound, unprocessableBody } from '../../../plugins/refusal.ts'
import { exportList } from '../operation/archive-shapes.ts'
import { commitChange } from '../operation/change.ts'
import { emptyOperation, readOperation } from '../operation/operation.ts'

/** GET /v1/admin/exports: the sinks that get rows, and how far each is (docs/exports.md). */
export const listExports = readOperation({
  name: 'listExports',
  summary: 'Lists the sinks that get rows of the ledger, and how far each is.',
  takes: {},
  output: exportList,
  run: async ({ exports }, _input, { at }) => ({ value: { sinks: [...(await exports.list(at))] } }),
})

/** POST /v1/admin/exports/{sink}/rewind: has rows sent again. */
export const rewindExport = emptyOperation({
  demands: 'admin.audit',
  name: 'rewindExport',
  action: 'export.rewound',
  summary: 'Has a sink get a stream again from a row on, or leave rows out that cannot be read any more.',
  takes: {
    params: z.object({ sink: z.string().max(32) }),
    body: z.strictObject({
      stream: z.string().regex(/^[a-z0-9]{1,64}$/, 'must be a stream of the ledger'),
      seq: z.int().min(1).meta({ description: 'The first row that is sent again.' }),
    }),
  },
  reasons: ['not_found', 'audit_unavailable'],
  example: { stream: 'main', seq: 1 },
  run: async (context, { params: { sink }, body }, caller) => {
    const rewind = await context.exports.rewind(sink, body, caller.at)
    if (rewind === null)
      throw notFound(
        `85-export.yaml names no sink ${JSON.stringify(sink)}. GET /v1/admin/exports lists them.`,
      )
    if (body.seq > rewind.head + 1)
      throw unprocessableBody([
        { field: 'seq', message: `is beyond the last row of ${body.stream}, which is ${rewind.head}` },
      ])
    await commitChange(context, caller, {
      action: 'export.rewound',
      detail: { sink, ...body, from: rewind.from },
      statements: rewind.statements,
    })
  },
})
