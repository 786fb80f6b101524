import { z } from 'zod'
import { notFound } from '../../../plugins/refusal.ts'
import { commitChange } from '../operation/change.ts'
import { operation, readOperation } from '../operation/operation.ts'
import { providerList } from '../operation/provider-shapes.ts'

/** GET /v1/admin/providers: by the configuration and the calls of this gateway. No key, and nothing of one. */
export const listProviders = readOperation({
  name: 'listProviders',
  summary: 'Lists the providers of models: keys, models, order, and the figures of this gateway.',
  takes: {},
  output: providerList,
  fromStrangers: true,
  run: async ({ providers }, _input, { at }) => ({ value: providers.list(at) }),
})

/** POST /v1/admin/providers/{name}/try: reads its list of models once. No prompt, and no model is asked. */
export const tryProvider = operation({
  name: 'tryProvider',
  demands: 'admin.tools',
  action: 'provider.tried',
  // It changes nothing.
  harmless: true,
  summary: 'Asks a provider for its list of models, at most once in five seconds.',
  takes: { params: z.strictObject({ name: z.string().max(32) }) },
  output: z.strictObject({
    at: z.iso.datetime(),
    ms: z.int(),
    models: z.int().nullable().meta({ description: 'The number of models that it listed.' }),
    problem: z.string().nullable().meta({ description: 'Why it could not be read. Null: it was read.' }),
  }),
  fromStrangers: true,
  reasons: ['not_found', 'audit_unavailable'],
  run: async (context, { params: { name } }, caller) => {
    const trial = await context.providers.ask(name)
    if (!trial)
      throw notFound('No provider of this name is configured. GET /v1/admin/providers lists those that are.')
    const { isNew, at, ms, models, problem } = trial
    if (isNew)
      await commitChange(context, caller, {
        action: 'provider.tried',
        detail: { provider: name, models },
        statements: [],
      })
    return { value: { at: new Date(at).toISOString(), ms, models, problem } }
  },
})
