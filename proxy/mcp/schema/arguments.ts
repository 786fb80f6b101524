import { Ajv, type ErrorObject } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import canonicalize from 'canonicalize'
import { LRUCache } from 'lru-cache'
import { cut, visible } from '../../visible.ts'
import { extentOf } from '../protocol/json-values.ts'
import { linearPattern, PATTERN_MEMORY } from './pattern.ts'
import { type Dialect, type PreparedSchema, prepareSchema, type SchemaFault } from './prepare.ts'
import { metered, type StepBudget, stepBudgetOf } from './step-budget.ts'

/**
 * Checks a value. Returns null, or a sentence with the place of the fault, which quotes nothing of the value.
 */
type Check = (value: unknown) => string | null

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
  // Its other search for missing properties overlooks the one without a name.
  loopRequired: 0,
  logger: false,
} as const

const META: Readonly<Record<Dialect, string>> = {
  '2020-12': 'https://json-schema.org/draft/2020-12/schema',
  'draft-07': 'http://json-schema.org/draft-07/schema',
}
const metaChecks = new Map<Dialect, Check>()

interface Compiled {
  readonly check: Check
  /** Characters of the compiled code and memory of its patterns together. Bytes. */
  readonly weight: number
}

/** The weight of the smallest schema. Bytes. */
const MIN_WEIGHT = 8 * 1024

// By digest. The heaviest schema that is accepted weighs some 11 MiB; one that was dropped is compiled again.
const cache = new LRUCache<string, Compiled>({
  maxSize: 64 * 1024 * 1024,
  sizeCalculation: ({ weight }) => weight,
})

/**
 * Checks arguments against the pinned inputSchema. Returns null, or one sentence with the path, which holds
 * no value of theirs. Absent arguments are `{}`. Never throws, and does a bounded amount of work, whatever
 * both are: where the schema cannot be used, or checking takes too much work, that is the sentence. A schema
 * is compiled once for its digest. Does NOT check formats, nor a pattern that RE2 does not take: the tool's
 * flags name it.
 */
export function argumentsFault(
  definition: { readonly digest: string; readonly inputSchema: unknown },
  args: unknown,
): string | null {
  return checkFor(definition)(args === undefined ? {} : args)
}

/** Prepares a schema that arguments can be checked against, or says why it is none. Compiles nothing. */
export function usableSchema(inputSchema: unknown): PreparedSchema | SchemaFault {
  const prepared = prepareSchema(inputSchema)
  if ('problem' in prepared) return prepared
  const fault = metaFault(prepared)
  return fault === null ? prepared : { code: 'schema_unusable', problem: `it is not valid: ${fault}` }
}

function checkFor({ digest, inputSchema }: { digest: string; inputSchema: unknown }): Check {
  const known = cache.get(digest)
  if (known) return known.check
  const compiled = compiledFrom(inputSchema)
  cache.set(digest, compiled)
  return compiled.check
}

function compiledFrom(inputSchema: unknown): Compiled {
  const usable = usableSchema(inputSchema)
  if ('problem' in usable) return { check: () => refused(usable.problem), weight: MIN_WEIGHT }
  // Compiled code is some ten times as long as its schema.
  const weight = MIN_WEIGHT + 10 * usable.size + usable.patterns * PATTERN_MEMORY
  try {
    return { check: compileSchema(usable), weight }
  } catch {
    // The compiler says what it does not take by throwing.
    return { check: () => refused('it cannot be compiled'), weight: MIN_WEIGHT }
  }
}

const refused = (problem: string): string =>
  `cannot be checked, for the schema of this tool is unusable: ${problem}`

/** Checks a schema by the rules of its own dialect. Returns one sentence, or null. */
function metaFault({ dialect, schema }: PreparedSchema): string | null {
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
function compileSchema({ dialect, schema }: PreparedSchema): Check {
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
