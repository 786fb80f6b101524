import { _, type Ajv, type AnySchema, type KeywordCxt, Name } from 'ajv'

/** A budget of steps for one check at a time. `spend` throws where it is used up. */
export interface StepBudget {
  readonly start: () => void
  readonly spend: (steps: number) => void
}

export function stepBudgetOf(steps: number): StepBudget {
  let left = 0
  return {
    start: () => {
      left = steps
    },
    spend: (spent) => {
      left -= spent
      if (left < 0) throw new Error('too much work')
    },
  }
}

/** Keywords that look at each key of an object. */
const KEY_LOOPS = new Set([
  'additionalProperties',
  'maxProperties',
  'minProperties',
  'patternProperties',
  'propertyNames',
  'unevaluatedProperties',
])
// Of a large object each costs a look into a hash table, more than once.
const KEY_STEPS = 20
const ERRORS = new Name('vErrors')

/**
 * Makes each keyword of a validator that is compiled from now on spend what it is about to cost, so that no
 * schema keeps it busy with any value: references that fan out at every level, a thousand conditions for each
 * of a million items.
 */
export function metered(ajv: Pick<Ajv, 'RULES'>, { spend }: StepBudget): void {
  const charge = (data: unknown, price: number, looped: boolean): void => spend(price + sizeOf(data, looped))
  const chargeErrors = (errors: readonly unknown[] | null): void => spend(errors?.length ?? 0)
  for (const rule of Object.values(ajv.RULES.all)) {
    if (typeof rule !== 'object' || !('code' in rule.definition)) continue
    const { code, ...definition } = rule.definition
    const spending = (cxt: KeywordCxt, type?: string): void => {
      const { gen, data, keyword, schema } = cxt
      const call = gen.scopeValue('func', { ref: charge })
      gen.code(_`${call}(${data}, ${priceOf(keyword, schema)}, ${KEY_LOOPS.has(keyword)})`)
      // The errors of a reference are copied behind those from before.
      if (/ref$/i.test(keyword)) {
        gen.code(_`${gen.scopeValue('func', { ref: chargeErrors })}(${ERRORS})`)
      }
      code(cxt, type)
    }
    rule.definition = { ...definition, code: spending }
  }
}

/** Prices a keyword before it looks at a value: 10, and something for each thing that it names. */
function priceOf(keyword: string, schema: AnySchema): number {
  if (keyword === 'enum' || keyword === 'const') return 10 + (JSON.stringify(schema)?.length ?? 0)
  const things = typeof schema === 'object' ? Object.keys(schema).length : 0
  // Each branch that fails leaves an error behind, and they are kept until one holds.
  return 10 + things * (keyword === 'anyOf' || keyword === 'oneOf' ? 100 : 1)
}

function sizeOf(data: unknown, looped: boolean): number {
  if (typeof data === 'string') return data.length >> 1
  if (Array.isArray(data)) return data.length
  return looped && typeof data === 'object' && data !== null ? Object.keys(data).length * KEY_STEPS : 0
}
