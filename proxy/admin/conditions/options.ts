import { z } from 'zod'
import { sentenceOf } from './sentence.ts'

const FORM =
  'must be "<principal> may call <tool>" or "<principal> may use model <model>", with "may not" for the opposite, and * for any text'

export const expectOptions = z.strictObject({
  expect: z
    .array(
      z
        .string()
        .max(1024)
        .refine((text) => sentenceOf(text) !== null, FORM),
    )
    .max(200)
    .default([])
    .describe(
      'Sentences that must stay true, such as "acme::deploy may call github.create_pr" or "acme::intern may not call *.delete_*".',
    ),
})
