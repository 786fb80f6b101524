import { LRUCache } from 'lru-cache'
import { escapeHidden, truncateText } from '../../visible.ts'
import {
  budgetedCheck,
  compileSchema,
  isSmall,
  nonThrowingCheck,
  schemaCompiler,
  stepBudgetOf,
  type ValueCheck,
} from './check.ts'
import { PATTERN_MEMORY } from './pattern.ts'
import { type PreparedSchema, prepareSchema, type SchemaFault } from './prepare.ts'
import type { SchemaDialect } from './references.ts'

/** The steps of one check. One takes 1 to 20 ns. */
const MAX_STEPS = 20_000_000

const META: Readonly<Record<SchemaDialect, string>> = {
  '2020-12': 'https://json-schema.org/draft/2020-12/schema',
  '2019-09': 'https://json-schema.org/draft/2019-09/schema',
  'draft-07': 'http://json-schema.org/draft-07/schema',
}
const metaChecks = new Map<SchemaDialect, ValueCheck>()

interface CompiledSchema {
  readonly check: ValueCheck
  /** True if compiling it takes 7 ms at worst. */
  readonly small: boolean
  /** Characters of the compiled code and memory of its patterns together. Bytes. */
  readonly weight: number
}

/** Characters of the compiler's own words. */
const MAX_CAUSE = 200
/** The weight of the smallest schema. Bytes. */
const MIN_WEIGHT = 8 * 1024

// Keyed by digest. The heaviest schema that is accepted weighs some 11 MiB.
const cache = new LRUCache<string, CompiledSchema>({
  maxSize: 64 * 1024 * 1024,
  sizeCalculation: ({ weight }) => weight,
})

/**
 * Checks arguments against the pinned inputSchema, on a thread; reads it if it is new. `fault`: one sentence with
 * the path, which holds no value of theirs. Never throws, and does a bounded amount of work: what cannot be
 * checked is a sentence, too. Does NOT check formats, nor a pattern that RE2 does not take.
 */
export function argumentsVerdict(
  { digest, inputSchema }: { readonly digest: string; readonly inputSchema: () => unknown },
  args: unknown,
): { readonly fault: string | null; readonly small: boolean } {
  const { check, small } = compiledFor(digest, inputSchema)
  return { fault: check(args), small }
}

/** Prepares a schema that arguments can be checked against, or says why it is none. Compiles nothing. */
export function usableSchema(inputSchema: unknown): PreparedSchema | SchemaFault {
  const prepared = prepareSchema(inputSchema)
  if ('problem' in prepared) return prepared
  const fault = metaFault(prepared)
  return fault === null ? prepared : { code: 'schema_unusable', problem: `it is not valid: ${fault}` }
}

function compiledFor(digest: string, inputSchema: () => unknown): CompiledSchema {
  const known = cache.get(digest)
  if (known) return known
  const compiled = compiledFrom(inputSchema())
  cache.set(digest, compiled)
  return compiled
}

function compiledFrom(inputSchema: unknown): CompiledSchema {
  const usable = usableSchema(inputSchema)
  if ('problem' in usable) return unusable(usable.problem)
  // Compiled code is some ten times as long as its schema.
  const weight = MIN_WEIGHT + 10 * usable.size + usable.patterns * PATTERN_MEMORY
  const budget = stepBudgetOf(MAX_STEPS)
  try {
    return { check: nonThrowingCheck(compileSchema(usable, budget)), weight, small: isSmall(usable) }
  } catch (error) {
    // The compiler throws for a schema that it does not take.
    return unusable(`it cannot be compiled: ${causeOf(error)}`)
  }
}

function causeOf(error: unknown): string {
  if (error instanceof RangeError) return 'it is nested too deeply'
  return error instanceof Error ? truncateText(escapeHidden(error.message), MAX_CAUSE) : 'it is not known why'
}

function unusable(problem: string): CompiledSchema {
  const sentence = `cannot be checked, because the schema of this tool is unusable: ${problem}`
  return { check: () => sentence, weight: MIN_WEIGHT, small: false }
}

function metaFault({ dialect, schema }: PreparedSchema): string | null {
  const known = metaChecks.get(dialect)
  if (known) return known(schema)
  const budget = stepBudgetOf(MAX_STEPS)
  const ajv = schemaCompiler(dialect, budget, true)
  const check = nonThrowingCheck(budgetedCheck(ajv.compile({ $ref: META[dialect] }), budget))
  metaChecks.set(dialect, check)
  return check(schema)
}
