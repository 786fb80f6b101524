import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import type { Reply } from '../http/reply.ts'

const detail = z.looseObject({ reason: z.string(), request_id: z.string() })

const refusal = z
  .looseObject({
    type: z.literal('error'),
    error: z.strictObject({
      type: z.string(),
      code: z.string(),
      param: z.null(),
      message: z.string(),
      details: z.looseObject({ error_code: z.string() }),
    }),
    message: z.string(),
    reason: z.string().meta({ description: 'The word to act on.' }),
    request_id: z.string(),
    detail,
  })
  .meta({ id: 'Refusal', description: 'A refusal of this service.' })

const oauthRefusal = z
  .looseObject({
    error: z.string().meta({ description: 'The code of RFC 6749 §5.2 and its successors.' }),
    error_description: z.string(),
    message: z.string(),
    reason: z.string(),
    request_id: z.string(),
    detail,
  })
  .meta({ id: 'OAuthRefusal', description: 'A refusal of the token endpoint.' })

const jsonRpcRefusal = z
  .strictObject({
    jsonrpc: z.literal('2.0'),
    id: z.union([z.string(), z.int(), z.null()]),
    error: z.strictObject({
      code: z.int(),
      message: z.string(),
      data: z.looseObject({ reason: z.string(), message: z.string(), request_id: z.string() }).optional(),
    }),
  })
  .meta({ id: 'JsonRpcRefusal', description: 'A refusal of the MCP endpoint: an error of JSON-RPC 2.0.' })

export type OpenApiNode = Readonly<Record<string, unknown>>

export interface RefusalExample {
  readonly reason: string
  readonly reply: Reply
}

/** Collects the parts that a document names once and refers to from many places. */
export class OpenApiComponents {
  readonly #schemas = new Map<string, OpenApiNode>()
  readonly #responses = new Map<string, OpenApiNode>()
  readonly #examples = new Map<string, OpenApiNode>()

  /** The JSON Schema of a body or a query, the schemas that have an id by reference. */
  schema(of: z.ZodType, io: 'input' | 'output'): OpenApiNode {
    const { $defs = {}, ...schema } = jsonSchema(of, io)
    for (const [name, definition] of Object.entries($defs)) this.#schemas.set(name, definition)
    return schema
  }

  /** A response of one status for several reasons, by reference. A number tells apart equal names. */
  response(status: string, refusals: readonly RefusalExample[]): OpenApiNode {
    const description = refusals.map(({ reason }) => reason).join(', ')
    const response = { description, content: { 'application/json': this.refusals(refusals) } }
    const name = nameOf(status, refusals)
    for (let count = 1; ; count += 1) {
      const numbered = count === 1 ? name : `${name}-${count}`
      const known = this.#responses.get(numbered)
      if (known && !isDeepStrictEqual(known, response)) continue
      this.#responses.set(numbered, response)
      return { $ref: `#/components/responses/${numbered}` }
    }
  }

  /** The schema of the body and an example for each reason, by reference. */
  refusals(refusals: readonly RefusalExample[]): {
    readonly schema: OpenApiNode
    readonly examples: OpenApiNode
  } {
    const shapes = new Set<z.ZodType>()
    const examples = refusals.map(({ reason, reply }) => {
      const value: unknown = JSON.parse(typeof reply.body === 'string' ? reply.body : '{}')
      const [prefix, shape] = shapeOf(value)
      shapes.add(shape)
      this.#examples.set(prefix + reason, { value })
      return [reason, { $ref: `#/components/examples/${prefix}${reason}` }] as const
    })
    const schemas = [...shapes].map((shape) => this.schema(shape, 'output'))
    const [only = {}, ...others] = schemas
    return { schema: others.length > 0 ? { anyOf: schemas } : only, examples: Object.fromEntries(examples) }
  }

  get collected(): OpenApiNode {
    return {
      schemas: sortByName(this.#schemas),
      responses: sortByName(this.#responses),
      examples: sortByName(this.#examples),
    }
  }
}

/** A name that says as much as it can. Several responses may have the same one. */
function nameOf(status: string, refusals: readonly RefusalExample[]): string {
  const [first = '', ...more] = refusals.map(({ reason }) => reason)
  return `${status}-${more.length < 3 ? [first, ...more].join('-') : `${first}-and-${more.length}-more`}`
}

function shapeOf(body: unknown): [prefix: string, shape: z.ZodType] {
  if (jsonRpcRefusal.safeParse(body).success) return ['json_rpc.', jsonRpcRefusal]
  return oauthRefusal.safeParse(body).success ? ['oauth.', oauthRefusal] : ['', refusal]
}

type OpenApiSchema = OpenApiNode & { readonly $defs?: Readonly<Record<string, OpenApiNode>> }

// Schemas are made once and never change, and to write one down takes a millisecond.
const schemaCache = {
  input: new WeakMap<z.ZodType, OpenApiSchema>(),
  output: new WeakMap<z.ZodType, OpenApiSchema>(),
}

/** The JSON Schema of a zod schema, with references to the document's components. */
function jsonSchema(of: z.ZodType, io: 'input' | 'output'): OpenApiSchema {
  const known = schemaCache[io].get(of)
  if (known) return known
  const schema = z.toJSONSchema(of, { io, unrepresentable: 'any' })
  const text = JSON.stringify(schema, (key, value: unknown) => (key === '$schema' ? undefined : value))
  // JSON Schema is JSON, and an object.
  const made = JSON.parse(text.replaceAll('"#/$defs/', '"#/components/schemas/')) as OpenApiSchema
  schemaCache[io].set(of, made)
  return made
}

const sortByName = (named: ReadonlyMap<string, unknown>): OpenApiNode =>
  Object.fromEntries([...named].sort(([one], [other]) => (one < other ? -1 : 1)))
