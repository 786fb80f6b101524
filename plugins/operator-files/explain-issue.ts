// Types alone: whoever only quotes a value, as a verb of the command line does, loads no validator.
import type { z } from 'zod'
import type { FileFault } from './config-error.ts'
import { nearestName } from './nearest-name.ts'
import type { OperatorYaml, YamlPath } from './yaml.ts'

type Issue = z.core.$ZodIssue

export interface CheckedFile {
  readonly plugin: string
  readonly schema: z.ZodType
  readonly yaml: OperatorYaml
}

/**
 * Explains one finding of zod in an operator's words, at the place in the file that has to change. A value is
 * quoted only as written in the file and only if it should have been a number, a boolean or one of a few
 * words.
 */
export function explainIssue(issue: Issue, checked: CheckedFile): FileFault[] {
  const { yaml } = checked
  if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => unknownKey(issue.path, key, checked))
  if (issue.code === 'invalid_union') {
    // The alternative whose kind the value has says what is wrong in it.
    const inner = issue.errors.find((all) =>
      all.every(({ path, code }) => path.length > 0 || code === 'unrecognized_keys'),
    )
    if (inner)
      return inner.flatMap((one) => explainIssue({ ...one, path: [...issue.path, ...one.path] }, checked))
  }
  if (issue.code === 'invalid_key') {
    const message = `${shownValue(issue.path.at(-1))}: the key ${issue.issues[0]?.message ?? issue.message}`
    return [{ ...yaml.positionOfKey(issue.path), message }]
  }
  if (!yaml.has(issue.path)) {
    return [{ ...yaml.positionOf(issue.path), message: `${printPath(issue.path)} is missing` }]
  }
  return [{ ...yaml.positionOf(issue.path), message: complaint(issue, yaml) }]
}

function unknownKey(path: YamlPath, key: string, { plugin, schema, yaml }: CheckedFile): FileFault {
  const known = knownKeys(schema, path)
  const place = yaml.positionOfKey([...path, key])
  const where = path.length === 0 ? `plugin ${plugin}` : printPath(path)
  const meant = nearestName(key, known)
  const hint = meant ? `did you mean ${meant}?` : `${where} takes no options`
  return { ...place, message: `unknown key ${shownValue(key)} in ${where}: ${hint}` }
}

function complaint(issue: Issue, yaml: OperatorYaml): string {
  const name = printPath(issue.path)
  const got = `, got ${shownValue(yaml.written(issue.path))}`
  if (issue.code === 'invalid_value') return `${name} must be ${joinWithOr(issue.values.map(String))}${got}`
  if (issue.code === 'invalid_type') {
    const type = TYPES[issue.expected] ?? issue.expected
    return `${name} must be ${type}${QUOTED.has(issue.expected) ? got : ''}`
  }
  if (issue.code === 'too_small') return `${name} must ${size(issue.origin, 'at least', issue.minimum)}`
  if (issue.code === 'too_big') return `${name} must ${size(issue.origin, 'at most', issue.maximum)}`
  return /^[a-z]/.test(issue.message) ? `${name} ${issue.message}` : `${name}: ${issue.message}`
}

const TYPES: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'an integer',
  boolean: 'true or false',
  object: 'a map',
  record: 'a map',
  array: 'a list',
}
const QUOTED: ReadonlySet<string> = new Set(['number', 'int', 'boolean'])

function size(origin: string, bound: string, limit: number | bigint): string {
  if (origin === 'string') return `be ${bound} ${limit} characters long`
  return origin === 'array' ? `have ${bound} ${limit} entries` : `be ${bound} ${limit}`
}

/** Characters. */
const MAX_VALUE = 160

/** Writes a value for a sentence: as JSON, and the beginning of a long one. */
export function shownValue(value: unknown): string {
  const text = JSON.stringify(value ?? null)
  return text.length <= MAX_VALUE ? text : `${text.slice(0, MAX_VALUE)}…`
}

/** `off, optional or required`. */
export function joinWithOr(words: readonly string[]): string {
  const rest = words.slice(0, -1)
  return rest.length === 0 ? words.join('') : `${rest.join(', ')} or ${words.at(-1)}`
}

/** Prints the place of a value: `providers[0].base_url`. Empty for the whole. */
export function printPath(path: YamlPath): string {
  return path
    .map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`))
    .join('')
    .replace(/^\./, '')
}

type PublishedSchema = z.core.JSONSchema.BaseSchema

// Read off the published JSON Schema, so that a suggestion never differs from what editors complete.
function knownKeys(schema: z.ZodType, path: YamlPath): readonly string[] {
  let at: PublishedSchema | undefined = schema.toJSONSchema({
    io: 'input',
    unrepresentable: 'any',
  })
  for (const step of path) at = typeof step === 'number' ? itemOf(at) : propertyOf(at, String(step))
  const of = at?.anyOf?.filter(isSchema).find(({ properties }) => properties) ?? at
  return Object.keys(of?.properties ?? {})
}

type MaybeSchema = boolean | PublishedSchema | readonly (boolean | PublishedSchema)[] | undefined

const isSchema = (found: MaybeSchema): found is PublishedSchema =>
  typeof found === 'object' && !Array.isArray(found)

function itemOf(schema: PublishedSchema | undefined): PublishedSchema | undefined {
  return isSchema(schema?.items) ? schema.items : undefined
}

function propertyOf(schema: PublishedSchema | undefined, name: string): PublishedSchema | undefined {
  const property = schema?.properties?.[name] ?? schema?.additionalProperties
  return isSchema(property) ? property : undefined
}
