import { Ajv, type ErrorObject } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import canonicalize from 'canonicalize'
import { cut, visible } from '../../visible.ts'
import { extentOf } from '../protocol/json-values.ts'
import { linearPattern } from './pattern.ts'
import type { Dialect, PreparedSchema } from './prepare.ts'
import { metered, type StepBudget, stepBudgetOf } from './step-budget.ts'

/**
 * Checks a value. Returns null, or a sentence with the place of the fault, which quotes nothing of the value.
 */
export type Check = (value: unknown) => string | null

/** The steps of one check. One takes 1 to 20 ns. */
const MAX_STEPS = 20_000_000
const MAX_DEPTH = 64
const MAX_VALUES = 1_000_000
const MAX_SENTENCE = 300

const OPTIONS = {
  strict: false,
  strictNumbers: true,
  ownProperties: true,
  validateFormats: false,
  validateSchema: false,
  // A schema that is referred to a thousand times is compiled once.
  inlineRefs: false,
  // Its other way of finding missing properties overlooks the one without a name.
  loopRequired: 0,
  logger: false,
} as const

const META: Readonly<Record<Dialect, string>> = {
  '2020-12': 'https://json-schema.org/draft/2020-12/schema',
  'draft-07': 'http://json-schema.org/draft-07/schema',
}
const metaChecks = new Map<Dialect, Check>()

/** Checks a schema by the rules of its own dialect. Returns one sentence, or null. */
export function metaFault({ dialect, schema }: PreparedSchema): string | null {
  const known = metaChecks.get(dialect)
  if (known) return known(schema)
  const budget = stepBudgetOf(MAX_STEPS)
  const ajv = validator(dialect, budget, true)
  const check = checkOf(ajv.compile({ $ref: META[dialect] }), budget)
  metaChecks.set(dialect, check)
  return check(schema)
}

/**
 * Compiles a schema. Throws an Error where the compiler does not take it. Blocks for some 0.1 ms for each
 * schema in it.
 */
export function compileSchema({ dialect, schema }: PreparedSchema): Check {
  const budget = stepBudgetOf(MAX_STEPS)
  // A validator of its own: nothing that one schema declares is known to another.
  const validate = validator(dialect, budget, false).compile(schema)
  // Code that is nested too deeply to run shows on the first run.
  budget.start()
  validate({})
  return checkOf(validate, budget)
}

type Validate = ((value: unknown) => unknown) & { errors?: readonly ErrorObject[] | null }

const checkOf =
  (validate: Validate, budget: StepBudget): Check =>
  (value) => {
    const { depth, values, proto } = extentOf(value, MAX_VALUES)
    if (depth > MAX_DEPTH || values > MAX_VALUES) return 'too much to be checked'
    // No validator sees what such a member holds, and a careless reader takes it for something else.
    if (proto) return 'must not have a member named __proto__'
    try {
      budget.start()
      return validate(value) === true ? null : sentenceOf(validate.errors?.[0])
    } catch {
      // Out of steps, or out of stack: what was not checked does not pass.
      return 'cannot be checked with reasonable effort'
    }
  }

function sentenceOf(error: ErrorObject | undefined): string {
  if (!error) return 'do not fit the schema'
  const { instancePath, message, params } = error
  const names: unknown = params.additionalProperty ?? params.unevaluatedProperty ?? params.propertyName
  const named = typeof names === 'string' ? `: ${JSON.stringify(names)}` : ''
  return cut(visible(`${instancePath} ${message ?? 'does not fit the schema'}${named}`.trim()), MAX_SENTENCE)
}

function validator(dialect: Dialect, budget: StepBudget, meta: boolean): Ajv | Ajv2020 {
  const options = { ...OPTIONS, meta, code: { optimize: false, regExp: linearRegExp(budget) } }
  const ajv = dialect === '2020-12' ? new Ajv2020(options) : new Ajv(options)
  ajv.removeKeyword('uniqueItems')
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    errors: false,
    error: { message: 'must not have an item twice' },
    validate: (wanted: boolean, items: readonly unknown[]) => !wanted || distinct(items, budget),
  })
  metered(ajv, budget)
  return ajv
}

// The library compares every two items.
function distinct(items: readonly unknown[], { spend }: StepBudget): boolean {
  const seen = new Set<string | undefined>()
  for (const item of items) {
    const text = typeof item === 'string' ? `"${item}` : canonicalize(item)
    spend(10 + (text?.length ?? 0))
    if (seen.has(text)) return false
    seen.add(text)
  }
  return true
}

function linearRegExp({ spend }: StepBudget) {
  const engine = (source: string) => {
    const pattern = linearPattern(source)
    const test = (text: string): boolean => {
      spend((text.length + 1) * (pattern?.weight ?? 1))
      return pattern?.test(text) ?? true
    }
    // By this the library tells two patterns apart.
    return { test, toString: () => source }
  }
  return Object.assign(engine, { code: 'linearRegExp' })
}
