import { z } from 'zod'
import { countKeyless } from '../../../db/principals/read.ts'
import { operation } from '../operation/operation.ts'

/** Counted up to here. */
const MAX_COUNTED = 10_000

const count = z.int().min(0).max(MAX_COUNTED)

/**
 * Counts callers in service without a registered proof key, by kind: their certificates alone speak for them.
 */
export const countKeylessPrincipals = operation({
  name: 'countKeylessPrincipals',
  demands: 'admin.read',
  action: 'admin.read',
  summary: 'Counts the principals that have registered no proof key.',
  takes: {},
  output: z.strictObject({ agents: count, users: count, workloads: count }),
  status: 200,
  reasons: [],
  run: async ({ database }) => ({
    value: {
      agents: await countKeyless(database, 'agent', MAX_COUNTED),
      users: await countKeyless(database, 'user', MAX_COUNTED),
      workloads: await countKeyless(database, 'workload', MAX_COUNTED),
    },
  }),
})
