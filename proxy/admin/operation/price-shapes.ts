import { z } from 'zod'

const rates = z.record(z.string(), z.int())

/** The rates of a price as rows state them: pico-USD of a token, a use or a call. */
const ratesShape = z.strictObject({
  tokens: rates.exactOptional(),
  above: z
    .array(rates)
    .readonly()
    .exactOptional()
    .meta({ description: 'Of calls with more input than `input_over`.' }),
  uses: rates.exactOptional(),
  call: z.int().exactOptional(),
  factors: z.record(z.string(), rates).exactOptional().meta({ description: 'Millionths.' }),
})

const foundPriceShape = z.strictObject({
  provider: z.string(),
  model: z.string().nullable().meta({ description: 'As the provider knows it.' }),
  price: z.string().nullable().meta({ description: 'The name of the rates in rows. Null: it has none.' }),
  entry: z.string().nullable().meta({ description: 'The pattern that fits it first.' }),
  source: z.enum(['file', 'builtin', 'table']).nullable(),
  free: z.boolean(),
  rates: ratesShape.nullable(),
  window: z.int().nullable().meta({ description: 'The tokens that it can take at once. Null: not known.' }),
})

export const foundPricesShape = z.strictObject({
  configured: z.boolean().meta({ description: 'False: there is no 55-prices.yaml, and nothing is priced.' }),
  table: z.string().nullable().meta({ description: 'SHA-256 of the table of prices.' }),
  prices: z.array(foundPriceShape).meta({ description: 'One of each provider that a call would try.' }),
})

export type FoundPrices = z.output<typeof foundPricesShape>
