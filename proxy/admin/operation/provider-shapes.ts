import { z } from 'zod'

const instant = z.iso.datetime().nullable()
const milliseconds = z.number().nullable()

const span = z
  .strictObject({
    calls: z.int().meta({ description: 'Requests to the provider, failed ones included.' }),
    errors: z.int(),
    tokens: z.strictObject({ input: z.int(), output: z.int() }),
    p50_ms: milliseconds.meta({
      description: 'Of whole calls. At most a quarter too much. Null: there was no call.',
    }),
    p99_ms: milliseconds,
    first_byte_p50_ms: milliseconds.meta({ description: 'From the request to the head of the answer.' }),
    first_byte_p99_ms: milliseconds,
  })
  .meta({ id: 'ProviderSpan' })

const provider = z
  .strictObject({
    name: z.string(),
    dialect: z.string(),
    speaks: z
      .array(z.enum(['chat', 'responses', 'messages']))
      .meta({ description: 'The APIs that it answers.' }),
    base_url: z.string(),
    key: z
      .enum(['set', 'missing', 'callers'])
      .meta({ description: "callers: it gets its callers' own keys." }),
    key_variable: z.string().nullable().meta({ description: 'The variable that the key comes from.' }),
    is_default: z.boolean(),
    weight: z
      .number()
      .nullable()
      .meta({ description: 'Its share among the providers of a model. Null: the order of the file.' }),
    breaker: z.enum(['closed', 'half_open', 'open', 'off']).meta({
      description: 'open: it fails, and is left alone. half_open: one call at a time tries it again.',
    }),
    patterns: z.array(z.string()).meta({ description: '`models` of its file: * stands for any characters.' }),
    aliases: z.record(z.string(), z.string()),
    listed: z
      .strictObject({ count: z.int(), first: z.array(z.string()) })
      .nullable()
      .meta({ description: 'The list that it gave last. Null: none yet, or it could not be read.' }),
    answering_since: instant.meta({ description: 'Null: it fails, or was not called since the start.' }),
    failing_since: instant,
    problem: z.string().nullable().meta({ description: 'The reason of its last failure, while it fails.' }),
    last_hour: span,
    last_day: span,
  })
  .meta({ id: 'LlmProvider' })

export const providerList = z.strictObject({
  since: z.iso.datetime().meta({ description: 'The start of this gateway: it has counted from then on.' }),
  providers: z.array(provider),
  routes: z.array(
    z.strictObject({
      model: z.string(),
      providers: z.array(z.string()).meta({
        description: 'In the order in which they are tried; those with a weight share their places.',
      }),
    }),
  ),
})

export type ProviderList = z.output<typeof providerList>
