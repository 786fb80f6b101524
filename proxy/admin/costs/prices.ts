import { z } from 'zod'
import { readOperation } from '../operation/operation.ts'
import { foundPricesShape } from '../operation/price-shapes.ts'

/** GET /v1/admin/prices?model=: the price that calls of a model are charged by, of each provider that has it. */
export const findPrices = readOperation({
  name: 'findPrices',
  summary: 'Shows by which prices calls of a model are charged.',
  takes: {
    query: z.strictObject({
      model: z.string().min(1).max(512).meta({ description: 'As a caller names it.' }),
    }),
  },
  output: foundPricesShape,
  run: async ({ findPrices: find }, { query: { model } }) => ({ value: find(model) }),
})
