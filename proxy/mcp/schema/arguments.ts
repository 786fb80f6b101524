import { Ajv, type ErrorObject } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import canonicalize from 'canonicalize'
import { LRUCache } from 'lru-cache'
import { cut, visible } from '../../visible.ts'
import { extentOf } from '../protocol/json-text.ts'
import { linearPattern, PATTERN_MEMORY } from './pattern.ts'
import { type Dialect, type PreparedSchema, prepareSchema, type SchemaFault } from './prepare.ts'
import { metered, type StepBudget, stepBudgetOf } from './step-budget.ts'

/**
 * Checks a value. Returns null, or a sentence with the place of the fault, which quotes nothing of the value.
 */
type Check = (value: unknown) => string | null

/** The steps of one check. One takes 1 to 20 ns. */
const MAX_STEPS = 20_000_000
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

const META: Readonly<Record<Dialect, string>> = {
  '2020-12': 'https://json-schema.org/draft/2020-12/schema',
  'draft-07': 'http://json-schema.org/draft-07/schema',
}
const metaChecks = new Map<Dialect, Check>()

interface Compiled {
  readonly check: Check
  /** True where compiling it takes 7 ms at worst. */
  readonly small: boolean
  /** Characters of the compiled code and memory of its patterns together. Bytes. */
  readonly weight: number
}

/** A schema of no more than this is small: characters of JSON, values, and instructions of its patterns. */
const SMALL_SCHEMA = { size: 16_384, values: 120, patternWeight: 300 }

/** The weight of the smallest schema. Bytes. */
const MIN_WEIGHT = 8 * 1024

// By digest. The heaviest schema that is accepted weighs some 11 MiB; one that was dropped is compiled again.
const cache = new LRUCache<string, Compiled>({
  maxSize: 64 * 1024 * 1024,
  sizeCalculation: ({ weight }) => weight,
})

/** A tool's schema, and the digest of the definition that it stands in. */
interface ToolSchema {
  readonly digest: string
  readonly inputSchema: unknown
}

/**
 * Checks arguments against the pinned inputSchema. Returns null, or one sentence with the path, which holds
 * no value of theirs. Absent arguments are `{}`. Never throws, and does a bounded amount of work, whatever
 * both are: where the schema cannot be used, or checking takes too much work, that is the sentence. A schema
 * is compiled once for its digest. Does NOT check formats, nor a pattern that RE2 does not take: the tool's
 * flags name it.
 */
export function argumentsFault({ digest, inputSchema }: ToolSchema, args: unknown): string | null {
  return compiledFor(digest, () => inputSchema).check(args === undefined ? {} : args)
}

/**
 * Checks arguments as {@link argumentsFault} does, on a thread where that may take its time. `inputSchema` is
 * read where the digest is new. Tells also whether the schema is so small that {@link compileSmall} may take
 * it.
 */
export function judgedArguments(
  { digest, inputSchema }: { readonly digest: string; readonly inputSchema: () => unknown },
  args: unknown,
): { readonly fault: string | null; readonly small: boolean } {
  const { check, small } = compiledFor(digest, inputSchema)
  return { fault: check(args), small }
}

// By digest: small schemas, compiled for the thread that serves.
const quick = new LRUCache<string, (value: unknown) => string | null | undefined>({ max: 1_000 })

/**
 * Checks arguments as {@link argumentsFault} does, within some 5 ms for those of 32 KiB. Returns undefined
 * where that does not suffice, or {@link compileSmall} was not called with this digest, lately.
 */
export function quickFault(digest: string, args: unknown): string | null | undefined {
  return quick.get(digest)?.(args)
}

/** Compiles a schema for {@link quickFault}: one that {@link judgedArguments} has found small. */
export function compileSmall({ digest, inputSchema }: ToolSchema): void {
  const prepared = prepareSchema(inputSchema)
  if ('problem' in prepared || !isSmall(prepared)) return
  const budget = stepBudgetOf(MAX_QUICK_STEPS)
  const judge = compileSchema(prepared, budget)
  quick.set(digest, (value) => {
    try {
      return judge(value)
    } catch {
      return undefined
    }
  })
}

/** Prepares a schema that arguments can be checked against, or says why it is none. Compiles nothing. */
export function usableSchema(inputSchema: unknown): PreparedSchema | SchemaFault {
  const prepared = prepareSchema(inputSchema)
  if ('problem' in prepared) return prepared
  const fault = metaFault(prepared)
  return fault === null ? prepared : { code: 'schema_unusable', problem: `it is not valid: ${fault}` }
}

function compiledFor(digest: string, inputSchema: () => unknown): Compiled {
  const known = cache.get(digest)
  if (known) return known
  const compiled = compiledFrom(inputSchema())
  cache.set(digest, compiled)
  return compiled
}

function compiledFrom(inputSchema: unknown): Compiled {
  const usable = usableSchema(inputSchema)
  if ('problem' in usable) return unusable(usable.problem)
  // Compiled code is some ten times as long as its schema.
  const weight = MIN_WEIGHT + 10 * usable.size + usable.patterns * PATTERN_MEMORY
  const budget = stepBudgetOf(MAX_STEPS)
  try {
    return { check: patient(compileSchema(usable, budget)), weight, small: isSmall(usable) }
  } catch {
    // The compiler says what it does not take by throwing.
    return unusable('it cannot be compiled')
  }
}

function unusable(problem: string): Compiled {
  const sentence = `cannot be checked, for the schema of this tool is unusable: ${problem}`
  return { check: () => sentence, weight: MIN_WEIGHT, small: false }
}

const isSmall = ({ size, values, patternWeight }: PreparedSchema): boolean =>
  size <= SMALL_SCHEMA.size && values <= SMALL_SCHEMA.values && patternWeight <= SMALL_SCHEMA.patternWeight

/** Checks a schema by the rules of its own dialect. Returns one sentence, or null. */
function metaFault({ dialect, schema }: PreparedSchema): string | null {
  const known = metaChecks.get(dialect)
  if (known) return known(schema)
  const budget = stepBudgetOf(MAX_STEPS)
  const ajv = validator(dialect, budget, true)
  const check = patient(checkOf(ajv.compile({ $ref: META[dialect] }), budget))
  metaChecks.set(dialect, check)
  return check(schema)
}

/**
 * Compiles a schema into a check that throws where its budget does not suffice. Throws an Error where the
 * compiler does not take it. Blocks for some 0.1 ms for each schema in it.
 */
function compileSchema({ dialect, schema }: PreparedSchema, budget: StepBudget): Check {
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
    budget.start()
    return validate(value) === true ? null : sentenceOf(validate.errors?.[0])
  }

const patient =
  (check: Check): Check =>
  (value) => {
    try {
      return check(value)
    } catch {
      // Out of steps, or out of stack: what was not checked does not pass.
      return NOT_CHECKED
    }
  }

/** The fault of arguments that take too much work to check. */
export const NOT_CHECKED = 'cannot be checked with reasonable effort'

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
