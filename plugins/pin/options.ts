import { z } from 'zod'

export const pinOptions = z.strictObject({
  rotation_grace_hours: z
    .int()
    .min(0)
    .max(720)
    .default(48)
    .describe(
      'How long the previous certificate of a principal stays valid after a rotation. Hours. Default 48. ' +
        '0 ends it at once; longer gives agents more time and a stolen old key more use.',
    ),
})

export type PinOptions = z.output<typeof pinOptions>
