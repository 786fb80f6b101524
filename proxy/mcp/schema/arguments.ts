import { type Check, compileSchema, metaFault } from './compile.ts'
import { PATTERN_MEMORY } from './pattern.ts'
import { type PreparedSchema, prepareSchema, type SchemaFault } from './prepare.ts'

interface Kept {
  readonly check: Check
  readonly weight: number
}

/** Of what is kept, characters of schemas and memory of patterns together. Bytes. */
const CACHE_MAX_BYTES = 64 * 1024 * 1024
/** An entry of the smallest schema. Bytes. */
const LEAST = 8 * 1024
// Oldest use first. Owned by checkFor; a crash loses nothing but the time to compile again.
const kept = new Map<string, Kept>()
let total = 0

/**
 * What is wrong with these arguments under the pinned inputSchema: one sentence with the path, in which no value of theirs
 * stands, or null. Absent arguments are `{}`. Never throws, and does a bounded amount of work, whatever both are: where the
 * schema cannot be used, or checking takes too much work, that is the sentence. A schema is compiled once for its digest.
 * Formats are NOT checked, nor is a pattern that RE2 does not take: the tool's flags name it.
 */
export function argumentsFault(
  definition: { readonly digest: string; readonly inputSchema: unknown },
  args: unknown,
): string | null {
  return checkFor(definition)(args === undefined ? {} : args)
}

/** A schema that its arguments can be checked against, or why it is none. Compiles nothing. */
export function usableSchema(inputSchema: unknown): PreparedSchema | SchemaFault {
  const prepared = prepareSchema(inputSchema)
  if ('problem' in prepared) return prepared
  const fault = metaFault(prepared)
  return fault === null ? prepared : { code: 'schema_unusable', problem: `it is not valid: ${fault}` }
}

function checkFor({ digest, inputSchema }: { digest: string; inputSchema: unknown }): Check {
  const known = kept.get(digest)
  if (known) kept.delete(digest)
  const entry = known ?? made(inputSchema)
  kept.set(digest, entry)
  if (!known) total += entry.weight
  for (const [oldest, { weight }] of kept) {
    if (total <= CACHE_MAX_BYTES || oldest === digest) break
    kept.delete(oldest)
    total -= weight
  }
  return entry.check
}

function made(inputSchema: unknown): Kept {
  const usable = usableSchema(inputSchema)
  if ('problem' in usable) return { check: () => refused(usable.problem), weight: LEAST }
  // Compiled code is some ten times as long as its schema.
  const weight = LEAST + 10 * usable.size + usable.patterns * PATTERN_MEMORY
  try {
    return { check: compileSchema(usable), weight }
  } catch {
    // The compiler says what it does not take by throwing.
    return { check: () => refused('it cannot be compiled'), weight: LEAST }
  }
}

const refused = (problem: string): string =>
  `cannot be checked, for the schema of this tool is unusable: ${problem}`
