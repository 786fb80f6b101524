import { z } from 'zod'
import { instant } from './shapes.ts'

export const anchorStanding = z.strictObject({
  anchor: z.string().meta({ description: 'Its kind and place: `witness:https://…`.' }),
  size: z
    .int()
    .min(0)
    .meta({ description: 'The number of rows under the last checkpoint that it keeps; 0: none.' }),
  kept_at: instant.nullable(),
  error: z
    .string()
    .nullable()
    .meta({ description: 'Why it did not take the last checkpoint, if it did not.' }),
  failed_at: instant.nullable(),
  late: z.boolean().meta({ description: 'Whether it has lacked a checkpoint for more than two minutes.' }),
})

/** The progress of an anchor of the configuration. */
export type AnchorStanding = Readonly<z.infer<typeof anchorStanding>>
