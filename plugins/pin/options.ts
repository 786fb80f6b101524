import { z } from 'zod'

const bundleSource = z
  .strictObject({
    file: z
      .string()
      .min(1)
      .exactOptional()
      .describe('A file on this machine: PEM, or a SPIFFE bundle (JSON).'),
    url: z
      .url({ protocol: /^https$/ })
      .exactOptional()
      .describe('A SPIFFE bundle endpoint of the profile https_web.'),
    grace_hours: z
      .int()
      .min(0)
      .max(720)
      .exactOptional()
      .describe('How long the CAs before stay valid after a change. Hours. Default: rotation_grace_hours.'),
  })
  .refine(({ file, url }) => (file === undefined) !== (url === undefined), 'give either file or url')

/** The place that a trust bundle is read from again and again. */
export type BundleSource = z.output<typeof bundleSource>

const MAX_BUNDLES = 32

export const pinOptions = z.strictObject({
  trust_bundles: z
    .record(z.string().regex(/^[a-z0-9][a-z0-9._-]{0,63}$/), bundleSource)
    .refine((all) => Object.keys(all).length <= MAX_BUNDLES, `must be at most ${MAX_BUNDLES}`)
    .default({})
    .describe(
      'Trust bundles by name, which are read again by themselves: an agent follows one if it is told to.',
    ),
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
