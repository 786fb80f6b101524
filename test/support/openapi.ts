import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import type { Answered, Json } from './gateway.ts'

/** The published document: what `GET /openapi.json` answers. */
export const PUBLISHED: Json = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../docs/openapi.json'), 'utf8'),
)

export interface Entry {
  readonly method: string
  readonly path: string
  readonly doc: Json
}

/** Every operation of the published document. */
export const ENTRIES: readonly Entry[] = Object.entries<Json>(PUBLISHED.paths).flatMap(([path, methods]) =>
  Object.entries<Json>(methods).map(([method, doc]) => ({ method: method.toUpperCase(), path, doc })),
)

/** The operation of a request (path without query), found as the router finds it: the path first. */
export function entryOf(method: string, path: string): Entry | undefined {
  const paths = Object.keys(PUBLISHED.paths)
  const found = paths.includes(path) ? path : paths.find((template) => fits(template, path))
  return ENTRIES.find((entry) => entry.method === method && entry.path === found)
}

function fits(template: string, path: string): boolean {
  const segments = path.split('/')
  const expected = template.split('/')
  return (
    expected.length === segments.length &&
    expected.every((segment, at) => segment.startsWith('{') || segment === segments[at])
  )
}

// No meta-schema: compiling it costs each file a twentieth of a second, and the document is none.
const ajv = new Ajv2020({
  ...{ strict: false, validateFormats: false, validateSchema: false, meta: false },
}).addSchema(PUBLISHED, 'openapi.json')

const pointer = (...steps: readonly string[]): string =>
  steps.map((step) => `/${encodeURIComponent(step.replaceAll('~', '~0').replaceAll('/', '~1'))}`).join('')

// Compiling one takes some 20 ms, and a file of tests has thousands of answers.
const validators = new Map<string, (value: unknown) => boolean>()

/** Tells whether a value is of the shape at a place of the published document (a JSON pointer with `#`). */
function hasSchema(place: string, value: unknown): boolean {
  const validate = validators.get(place) ?? ajv.compile({ $ref: `openapi.json${place}` })
  validators.set(place, validate)
  return validate(value)
}

/** What an answer has that the document does not say of it; null where it is as described. */
export function contradiction(entry: Entry, { status, headers, text, json }: Answered): string | null {
  const { method, path, doc } = entry
  const place = `${method} ${path} ${status}`
  const response = doc.responses[status]
  if (!response) return `${place} is not described: ${text}`
  const at = response.$ref ?? `#${pointer('paths', path, method.toLowerCase(), 'responses', String(status))}`
  const { content } = response.$ref ? PUBLISHED.components.responses[at.split('/').at(-1)] : response
  if (text === '') return content && status !== 304 ? `${place} has no body` : null
  const [media = ''] = String(headers['content-type']).split(';')
  if (!content?.[media]) return `${place} is not described as ${media}`
  if (media !== 'application/json') return null
  if (!hasSchema(`${at}${pointer('content', media, 'schema')}`, json))
    return `${place} is not of the shape described: ${text}`
  const reason =
    json.error === undefined && status < 400 ? undefined : (json.reason ?? json.error?.data?.reason)
  return reason === undefined || doc['x-reasons'].includes(reason)
    ? null
    : `${place} has the reason ${reason}, which is not described`
}

/** A request with the operator's secret, and its answer. */
export interface Administered {
  readonly method: string
  readonly path: string
  readonly answered: Answered
}

/** The pages of browsers, which are not described. */
const PAGES = /^\/proxy(?:\/|$)/

/** The contradictions of answers to the document. A path or method that is not described may only be refused. */
export const contradictions = (all: readonly Administered[]): readonly string[] =>
  all.flatMap(({ method, path, answered }) => {
    const [plain = ''] = path.split('?')
    const entry = entryOf(method, plain)
    if (entry) return contradiction(entry, answered) ?? []
    const isServed = answered.status < 400 && !PAGES.test(plain)
    return isServed ? `${method} ${plain} is served and not described` : []
  })

/** What the examples have that their schemas do not allow; empty where they are good. */
export function exampleFaults(): readonly string[] {
  const faults: string[] = []
  const check = (place: string, schema: string, value: unknown): void => {
    if (!hasSchema(schema, value)) faults.push(place)
  }
  for (const { method, path, doc } of ENTRIES) {
    const at = ['paths', path, method.toLowerCase()]
    for (const [media, { example }] of Object.entries<Json>(doc.requestBody?.content ?? {})) {
      const schema = `#${pointer(...at, 'requestBody', 'content', media, 'schema')}`
      if (example !== undefined) check(`${method} ${path}`, schema, example)
    }
  }
  for (const [name, response] of Object.entries<Json>(PUBLISHED.components.responses)) {
    const { examples } = response.content['application/json']
    const schema = `#${pointer('components', 'responses', name, 'content', 'application/json', 'schema')}`
    for (const [reason, { $ref: ref }] of Object.entries<Json>(examples))
      check(`${name} ${reason}`, schema, PUBLISHED.components.examples[ref.split('/').at(-1)].value)
  }
  return faults
}
