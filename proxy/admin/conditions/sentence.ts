import { z } from 'zod'

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

/** A sentence that must stay true (docs/rehearsal.md#expectations). */
export interface ExpectationSentence {
  readonly text: string
  /** The callers: an id, or a glob of ids. */
  readonly who: string
  /** False: `may not`. */
  readonly may: boolean
  readonly at: { readonly kind: 'tool' | 'model'; readonly glob: string }
}

const SENTENCE = /^(\S+) may (not )?(call|use model) (\S+)$/
const WHO = /^[A-Za-z0-9._:*-]{1,256}$/
const AT = /^[!-~]{1,256}$/

export function sentenceOf(text: string): ExpectationSentence | null {
  const [, who = '', not, verb, glob = ''] = SENTENCE.exec(text.trim().replaceAll(/ +/g, ' ')) ?? []
  if (!WHO.test(who) || !AT.test(glob)) return null
  return { text, who, may: not === undefined, at: { kind: verb === 'call' ? 'tool' : 'model', glob } }
}

export const isGlob = (text: string): boolean => text.includes('*')
