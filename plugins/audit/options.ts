import { z } from 'zod'

export const auditOptions = z.strictObject({
  queue_limit: z
    .int()
    .min(64)
    .max(1_000_000)
    .default(8192)
    .describe(
      'How many rows may wait for the ledger before further calls are refused with 503. Default 8192. ' +
        'Longer rides out a slower disk and costs memory.',
    ),
})

export type AuditOptions = z.output<typeof auditOptions>
