import { LRUCache } from 'lru-cache'
import { type Check, compileSchema, metaFault } from './compile.ts'
import { PATTERN_MEMORY } from './pattern.ts'
import { type PreparedSchema, prepareSchema, type SchemaFault } from './prepare.ts'

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
