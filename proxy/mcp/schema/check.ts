import { _, Ajv, type AnySchema, type ErrorObject, type KeywordCxt, Name } from 'ajv'
import { Ajv2019 } from 'ajv/dist/2019.js'
import { Ajv2020 } from 'ajv/dist/2020.js'
import canonicalize from 'canonicalize'
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import { isObject } from '../../../db/support/json.ts'
import { escapeHidden, truncateText } from '../../visible.ts'
import { measureJson } from '../protocol/json-text.ts'
import { argumentNames } from './argument-names.ts'
import { isMultiple } from './multiple-of.ts'
import { linearPattern } from './pattern.ts'
import { type PreparedSchema, prepareSchema } from './prepare.ts'
import type { SchemaDialect } from './references.ts'
import { ambiguousTextCheck } from './text-or-json.ts'

/**
 * Checks a value. Returns null, or a sentence with the place of the fault, which quotes nothing of the value.
 */
export type ValueCheck = (value: unknown) => string | null

/** The steps of one check on the thread that serves. */
const MAX_QUICK_STEPS = 100_000
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
  // Its other search for missing properties overlooks the one without a name.
  loopRequired: 0,
  logger: false,
} as const

/** A schema of no more than this is small: characters of JSON, values, and instructions of its patterns. */
const SMALL_SCHEMA = { size: 16_384, values: 120, patternWeight: 300 }

// Keyed by digest: small schemas, compiled for the thread that serves.
const quickChecks = boundedCache<(value: unknown) => string | null | undefined>(1_000)

/**
 * Checks arguments as `argumentsVerdict` does, within some 5 ms for those of 32 KiB. Undefined if that does not
 * suffice, or {@link compileSmall} was not called with this digest lately.
 */
export function quickFault(digest: string, args: unknown): string | null | undefined {
  return quickChecks.get(digest)?.(args)
}

/** Compiles a schema for {@link quickFault}: one that `argumentsVerdict` has found small. */
export function compileSmall(digest: string, inputSchema: unknown): void {
  const prepared = prepareSchema(inputSchema)
  if ('problem' in prepared || !isSmall(prepared)) return
  const budget = stepBudgetOf(MAX_QUICK_STEPS)
  const judge = compileSchema(prepared, budget)
  quickChecks.set(digest, (value) => {
    try {
      return judge(value)
    } catch {
      return undefined
    }
  })
}

/** Tells of a schema whether compiling it takes 7 ms at worst. */
export const isSmall = ({ size, values, patternWeight }: PreparedSchema): boolean =>
  size <= SMALL_SCHEMA.size && values <= SMALL_SCHEMA.values && patternWeight <= SMALL_SCHEMA.patternWeight

/**
 * Compiles a schema into a check that throws if its budget does not suffice: that arguments fit it, and that
 * no reader takes them for others. Throws an Error if the compiler does not take it. Blocks for some 0.1 ms
 * for each schema in it.
 */
export function compileSchema({ dialect, schema }: PreparedSchema, budget: StepBudget): ValueCheck {
  // A validator of its own: no declaration of one schema is known to another.
  const validate = schemaCompiler(dialect, budget, false).compile(schema)
  // Code that is nested too deeply to run shows on the first run.
  budget.start()
  validate({})
  const fits = budgetedCheck(validate, budget)
  const named = argumentNames(schema, budget.spend)
  const unambiguous = ambiguousTextCheck(schema, budget.spend)
  return (value) => {
    const fault = fits(value)
    if (fault !== null || isEmpty(value)) return fault
    const doubt = named(value) ?? unambiguous(value)
    return doubt && truncateText(doubt, MAX_SENTENCE)
  }
}

/** No arguments can be mistaken for others. */
const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0

type Validate = ((value: unknown) => unknown) & { errors?: readonly ErrorObject[] | null }

export const budgetedCheck =
  (validate: Validate, budget: StepBudget): ValueCheck =>
  (value) => {
    const { depth, values, proto } = measureJson(value, MAX_VALUES)
    if (depth > MAX_DEPTH || values > MAX_VALUES) return 'too much to be checked'
    // No validator sees the content of such a member, and a careless reader takes it for something else.
    if (proto) return 'must not have a member named __proto__'
    budget.start()
    return validate(value) === true ? null : sentenceOf(validate.errors?.[0])
  }

export const nonThrowingCheck =
  (check: ValueCheck): ValueCheck =>
  (value) => {
    try {
      return check(value)
    } catch {
      // Out of steps, or out of stack: an unchecked value does not pass.
      return NOT_CHECKED
    }
  }

export const NOT_CHECKED = 'cannot be checked with reasonable effort'

function sentenceOf(error: ErrorObject | undefined): string {
  if (!error) return 'do not fit the schema'
  const { instancePath, message, params } = error
  const names: unknown = params.additionalProperty ?? params.unevaluatedProperty ?? params.propertyName
  const named = typeof names === 'string' ? `: ${JSON.stringify(names)}` : ''
  return truncateText(
    escapeHidden(`${instancePath} ${message ?? 'does not fit the schema'}${named}`.trim()),
    MAX_SENTENCE,
  )
}

const COMPILERS = { '2020-12': Ajv2020, '2019-09': Ajv2019, 'draft-07': Ajv } as const
/** Exact division costs some microseconds. */
const MULTIPLE_STEPS = 500

/** Makes a compiler of schemas of a dialect; its validators spend of the budget. */
export function schemaCompiler(
  dialect: SchemaDialect,
  budget: StepBudget,
  meta: boolean,
): Ajv | Ajv2019 | Ajv2020 {
  const options = { ...OPTIONS, meta, code: { optimize: false, regExp: linearRegExp(budget) } }
  const ajv = new COMPILERS[dialect](options)
  ajv.removeKeyword('multipleOf')
  ajv.addKeyword({
    keyword: 'multipleOf',
    type: 'number',
    schemaType: 'number',
    errors: false,
    error: { message: ({ schema }) => `must be multiple of ${String(schema)}` },
    validate: (step: number, value: number) => {
      budget.spend(MULTIPLE_STEPS)
      return isMultiple(value, step)
    },
  })
  ajv.removeKeyword('uniqueItems')
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    errors: false,
    error: { message: 'must not have an item twice' },
    validate: (wanted: boolean, items: readonly unknown[]) => !wanted || hasDistinctItems(items, budget),
  })
  meterKeywords(ajv, budget)
  return ajv
}

// The library compares every two items.
function hasDistinctItems(items: readonly unknown[], { spend }: StepBudget): boolean {
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
    // The library tells two patterns apart by this.
    return { test, toString: () => source }
  }
  return Object.assign(engine, { code: 'linearRegExp' })
}

/** A budget of steps for one check at a time. `spend` throws if it is used up. */
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

const KEY_LOOPS = new Set([
  'additionalProperties',
  'maxProperties',
  'minProperties',
  'patternProperties',
  'propertyNames',
  'unevaluatedProperties',
])
// A key of a large object costs a look into a hash table, more than once.
const KEY_STEPS = 20
const ERRORS = new Name('vErrors')

/**
 * Makes each keyword of a validator that is compiled from now on spend its cost beforehand: references that
 * fan out at every level, a thousand conditions for each of a million items.
 */
export function meterKeywords(ajv: Pick<Ajv, 'RULES'>, { spend }: StepBudget): void {
  const charge = (data: unknown, price: number, looped: boolean): void => spend(price + sizeOf(data, looped))
  const chargeErrors = (errors: readonly unknown[] | null): void => spend(errors?.length ?? 0)
  for (const rule of Object.values(ajv.RULES.all)) {
    if (typeof rule !== 'object' || !('code' in rule.definition)) continue
    const { code, ...definition } = rule.definition
    const spending = (cxt: KeywordCxt, type?: string): void => {
      const { gen, data, keyword, schema } = cxt
      const call = gen.scopeValue('func', { ref: charge })
      gen.code(_`${call}(${data}, ${priceOf(keyword, schema)}, ${KEY_LOOPS.has(keyword)})`)
      // The errors of a reference are copied after those from before.
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
  // Each branch that fails leaves an error, and they are kept until one holds.
  return 10 + things * (keyword === 'anyOf' || keyword === 'oneOf' ? 100 : 1)
}

function sizeOf(data: unknown, looped: boolean): number {
  if (typeof data === 'string') return data.length >> 1
  if (Array.isArray(data)) return data.length
  return looped && typeof data === 'object' && data !== null ? Object.keys(data).length * KEY_STEPS : 0
}
