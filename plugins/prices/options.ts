import { z } from 'zod'

/** USD. Of a million tokens. */
const MAX_TOKEN_PRICE = 1_000_000
/** USD. */
const MAX_USE_PRICE = 1_000
const MAX_FACTOR = 1_000
const MAX_MODELS = 10_000
const MAX_TIERS = 16
/** Tokens. */
const MAX_WINDOW = 1_000_000_000

const perMillion = (what: string) =>
  z.number().min(0).max(MAX_TOKEN_PRICE).describe(`USD for a million tokens: ${what}`)
const perUse = z.number().min(0).max(MAX_USE_PRICE)

const glob = z
  .string()
  .min(1)
  .max(300)
  .regex(/^[^\p{Cc}]+$/u, 'must not have a control character')

const tokenPrices = {
  input: perMillion('of the input.').optional(),
  output: perMillion('of the output, reasoning included.').optional(),
  cached: perMillion('of input that came from the cache. Default: input.').optional(),
  cache_write: perMillion('of input that was written to the cache. Default: input.').optional(),
  cache_write_5m: perMillion('of it what stays for 5 minutes. Default: cache_write.').optional(),
  cache_write_30m: perMillion('of it what stays for 30 minutes. Default: cache_write.').optional(),
  cache_write_1h: perMillion('of it what stays for an hour. Default: cache_write.').optional(),
  cache_write_12h: perMillion('of it what stays for 12 hours. Default: cache_write.').optional(),
  input_audio: perMillion('of input that is sound. Default: input.').optional(),
  input_image: perMillion('of input that is pictures. Default: input.').optional(),
  output_audio: perMillion('of output that is sound. Default: output.').optional(),
  output_image: perMillion('of output that is pictures. Default: output.').optional(),
}

const tier = z
  .strictObject({
    ...tokenPrices,
    input_over: z
      .int()
      .min(1)
      .describe('The tier holds for the whole of a call whose input is longer. Tokens.'),
  })
  .superRefine(({ input, output }, context) => {
    if (input === undefined || output === undefined)
      context.addIssue({ code: 'custom', message: 'a tier must say input and output' })
  })

const factor = z.record(z.string().min(1).max(64), z.number().min(0).max(MAX_FACTOR))

const factors = z.strictObject({
  service_tier: factor.optional().describe('By the tier of the work, in the word of the provider.'),
  speed: factor.optional().describe('By its speed, likewise.'),
  geo: factor.optional().describe('By its place, likewise.'),
})

const priced = z
  .strictObject({
    match: z
      .union([glob, z.array(glob).min(1).max(500)])
      .describe(
        'provider/model, as routed: the name of the provider, and of the model there; one, or a list.',
      ),
    free: z.literal(true).optional().describe('The model costs nothing.'),
    ...tokenPrices,
    above: z.array(tier).max(MAX_TIERS).optional().describe('Prices of longer calls, the shortest first.'),
    call: perUse.optional().describe('USD for a call, in addition to its tokens.'),
    search: perUse.optional().describe('USD for a web search that the provider ran.'),
    uses: z
      .record(z.string().min(1).max(64), perUse)
      .optional()
      .describe('USD for a use of another tool that the provider runs, by tool (docs/ledger.md#tokens).'),
    factors: factors.optional().describe('Factors of this model, in place of the general ones of that kind.'),
    window: z
      .int()
      .min(1)
      .max(MAX_WINDOW)
      .optional()
      .describe(
        'The tokens that it can take at once: strict limits count what a call names but does not hold as so many.',
      ),
  })
  .superRefine(({ match: _, window, free, ...rates }, context) => {
    const refuse = (message: string) => context.addIssue({ code: 'custom', message })
    const { input, output, above, call, search, uses } = rates
    const hasRates = Object.values(rates).some((rate) => rate !== undefined)
    if (free && hasRates) refuse('is free and has a price; leave one of them out')
    if (free || !hasRates) {
      if (!free) refuse('must say free: true, or what it costs')
      return
    }
    if ((input === undefined) !== (output === undefined)) refuse('must say both input and output')
    if (input === undefined && (call ?? search ?? uses) === undefined)
      refuse('must say input and output, or what a call or a use costs')
    const overs = (above ?? []).map(({ input_over }) => input_over)
    if (overs.some((over) => over >= (window ?? Number.POSITIVE_INFINITY)))
      refuse('must have a window above each input_over')
    if (overs.some((over, at) => at > 0 && over <= (overs[at - 1] ?? 0)))
      refuse('must have its tiers with input_over ascending')
  })

/** Prices, as a table has them: the shipped one, and a file of the operator's. */
export const priceTable = z.strictObject({
  source: z.string().max(300).optional().describe('Where the prices are from.'),
  models: z.array(priced).max(MAX_MODELS),
})

/** The options of `55-prices.yaml`. Does NOT read the table. */
export const priceOptions = z.strictObject({
  table: z
    .string()
    .min(1)
    .max(1_024)
    .default('builtin')
    .describe(
      'builtin: the table that this version brings. none: no table. Else the path of a file of the form ' +
        '{models: […]}, relative to this directory. Default builtin.',
    ),
  unpriced: z
    .enum(['refuse', 'allow'])
    .default('refuse')
    .describe(
      'A call of a model without a price, where a cost limit applies to it: refuse, or allow it uncounted. Default refuse.',
    ),
  models: z
    .array(priced)
    .max(MAX_MODELS)
    .default([])
    .describe('Prices that count before the table. The first that matches counts.'),
  factors: factors
    .default({ service_tier: { flex: 0.5, priority: 2 }, speed: { fast: 2 }, geo: { us: 1.1 } })
    .describe(
      'What the prices of tokens are multiplied with. Default {service_tier: {flex: 0.5, priority: 2}, speed: {fast: 2}, geo: {us: 1.1}}.',
    ),
  tools: z
    .record(glob, perUse)
    .default({})
    .describe('USD for a call of an MCP tool, by globs on resource.tool. Others cost nothing.'),
})

export type PriceOptions = z.output<typeof priceOptions>
export type PriceTable = z.output<typeof priceTable>
export type PricedModel = PriceTable['models'][number]

/** The patterns of a model. */
export const matchesOf = ({ match }: Pick<PricedModel, 'match'>): readonly string[] =>
  typeof match === 'string' ? [match] : match
