import { setImmediate as nextTurn } from 'node:timers/promises'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import { VERSION } from '../boot/version.ts'
import {
  type AnswerDoc,
  type BodyDoc,
  EXAMPLE_ID,
  FAULT_REASONS,
  FRAMING_REASONS,
  PIPELINE_REASONS,
  type RouteDoc,
} from '../http/doc.ts'
import { refusalReply } from '../http/refusal.ts'
import type { Reply } from '../http/reply.ts'
import type { Route } from '../http/route.ts'
import { OpenApiComponents, type OpenApiNode, type RefusalExample } from './components.ts'

const DESCRIPTION = `A zero-trust gateway in front of LLM providers and MCP tools.

The pages of the dashboard, below /proxy, are for browsers and are not listed here. Any other path that is not listed
is refused with \`not_found\`, or with \`base_url_wrong\` if it starts with /v1 twice; another method of a listed path
with \`method_not_allowed\`. An operator's own checks may refuse calls of models
and tools with further reasons. Every answer carries its request id in X-Request-Id, which the log and the ledger
have too. On the control socket administration needs no secret.`

const OPERATOR: readonly OpenApiNode[] = [{ certificate: [] }, { admin_secret: [] }, { session: [] }]

const SECURITY: Readonly<Record<RouteDoc['caller'], readonly OpenApiNode[]>> = {
  anyone: [],
  principal: [{ certificate: [] }],
  operator: OPERATOR,
  monitor: [{ metrics_token: [] }, ...OPERATOR],
}

/** Pages and forms, which a browser asks for: no API, and so not described. */
const isPage = (path: string): boolean => path === '/proxy' || path.startsWith('/proxy/')

/**
 * Describes the routes of the API as an OpenAPI 3.1 document, each once. Throws if one has no doc. Gives
 * others a turn between two routes: it takes some tenths of a second, and anybody may ask for it.
 */
export async function openapi(routes: readonly Route[]): Promise<OpenApiNode> {
  const components = new OpenApiComponents()
  const paths: Record<string, Record<string, unknown>> = {}
  const named = new Map<RouteDoc, string[]>()
  for (const { method, path, surface, doc } of routes) {
    if (method === 'OTHER' || (!doc && isPage(path))) continue
    if (!doc) throw new Error(`${method} ${path} has no doc`)
    if (paths[path]?.[method.toLowerCase()]) continue
    await nextTurn()
    const before = named.get(doc) ?? []
    named.set(doc, [...before, path])
    paths[path] = {
      ...paths[path],
      [method.toLowerCase()]: { tags: [surface], ...entryOf(path, doc, before, components) },
    }
  }
  return {
    openapi: '3.1.1',
    info: { title: 'Sallyport', version: VERSION, description: DESCRIPTION },
    paths,
    components: {
      ...components.collected,
      securitySchemes: {
        certificate: {
          type: 'mutualTLS',
          description: 'A client certificate that is pinned to a principal.',
        },
        admin_secret: { type: 'apiKey', in: 'header', name: 'X-Admin-Secret' },
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: '__Host-sallyport',
          description: 'The session of a signed-in browser. Changes must also send X-Csrf-Token.',
        },
        metrics_token: { type: 'http', scheme: 'bearer', description: 'MCP_PROXY_METRICS_TOKEN.' },
      },
    },
  }
}

/** GET /openapi.json. The document is made when it is first asked for, and kept as bytes. */
export function serveOpenapi(routes: () => readonly Route[]): () => Promise<Reply> {
  let made: Promise<Buffer> | null = null
  return async () => {
    made ??= openapi(routes()).then((document) => Buffer.from(JSON.stringify(document)))
    return { status: 200, headers: { 'content-type': 'application/json' }, body: await made }
  }
}

function entryOf(
  path: string,
  doc: RouteDoc,
  before: readonly string[],
  components: OpenApiComponents,
): OpenApiNode {
  const [first] = before
  const { body } = doc
  const reasons = reasonsOf(doc)
  return {
    // An operationId is unique, also among aliases.
    operationId: first === undefined ? doc.name : `${doc.name}${before.length + 1}`,
    summary: doc.summary,
    ...(first !== undefined && { 'x-alias-of': first }),
    security: SECURITY[doc.caller],
    parameters: [...segmentsOf(path), ...queryOf(doc, components), ...headersOf(doc)],
    ...(body && { requestBody: bodyOf(body, components) }),
    responses: responsesOf(doc, reasons, components),
    'x-reasons': reasons,
    ...(doc.demands !== undefined && { 'x-required-capability': doc.demands }),
  }
}

const bodyOf = (body: BodyDoc, components: OpenApiComponents): OpenApiNode => ({
  required: !body.schema.safeParse({}).success,
  content: contentOf([body], 'input', components),
})

/** The reasons for which a request to a route may be refused, each once. */
function reasonsOf({ caller, body, reasons }: RouteDoc): readonly RefusalReason[] {
  const checked = caller === 'anyone' && !body ? [] : PIPELINE_REASONS
  return [...new Set([...FRAMING_REASONS, ...reasons, ...checked, ...FAULT_REASONS])]
}

const segmentsOf = (path: string): readonly OpenApiNode[] =>
  [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }))

function queryOf({ query }: RouteDoc, components: OpenApiComponents): readonly OpenApiNode[] {
  if (!query) return []
  const { properties = {} } = components.schema(query, 'input') as { properties?: OpenApiNode }
  return Object.entries(properties).map(([name, schema]) => ({ name, in: 'query', schema }))
}

const headersOf = ({ headers = {} }: RouteDoc): readonly OpenApiNode[] =>
  Object.entries(headers).map(([name, description]) => ({
    name,
    in: 'header',
    description,
    schema: { type: 'string' },
  }))

const contentOf = (
  contents: readonly BodyDoc[],
  io: 'input' | 'output',
  components: OpenApiComponents,
): Record<string, OpenApiNode> =>
  Object.fromEntries(
    contents.map(({ media = 'application/json', schema, example }) => [
      media,
      { schema: components.schema(schema, io), ...(example !== undefined && { example }) },
    ]),
  )

function responsesOf(
  doc: RouteDoc,
  reasons: readonly RefusalReason[],
  components: OpenApiComponents,
): OpenApiNode {
  const responses: Record<string, OpenApiNode> = {}
  for (const [status, answer] of Object.entries(doc.answers))
    responses[status] = responseOf(answer, components)
  const refused = Map.groupBy(
    reasons.map((reason) => ({ reason, reply: replyOf(doc, reason) })),
    ({ reply }) => String(reply.status),
  )
  for (const [status, refusals] of refused) {
    const answer = responses[status]
    responses[status] = answer
      ? withRefusals(answer, refusals, components)
      : components.response(status, refusals)
  }
  return responses
}

/** A request that is not HTTP as it should be is refused before its route is known. */
const replyOf = ({ refuse }: RouteDoc, reason: RefusalReason) =>
  refuse && !FRAMING_REASONS.includes(reason)
    ? refuse(new Refusal(reason))
    : refusalReply(new Refusal(reason), EXAMPLE_ID)

const responseOf = (
  { description, content, headers }: AnswerDoc,
  components: OpenApiComponents,
): OpenApiNode => ({
  description,
  ...(headers && { headers: headerDescriptions(headers) }),
  ...(content && { content: contentOf(content, 'output', components) }),
})

const headerDescriptions = (headers: Readonly<Record<string, string>>): OpenApiNode =>
  Object.fromEntries(
    Object.entries(headers).map(([name, description]) => [name, { description, schema: { type: 'string' } }]),
  )

function withRefusals(
  answer: OpenApiNode,
  refusals: readonly RefusalExample[],
  components: OpenApiComponents,
): OpenApiNode {
  const { schema, examples } = components.refusals(refusals)
  // contentOf has made it so.
  const content = (answer.content ?? {}) as Readonly<
    Record<string, { schema: OpenApiNode; example?: unknown }>
  >
  const { 'application/json': own, ...others } = content
  return {
    ...answer,
    description: `${String(answer.description)} Or: ${Object.keys(examples).join(', ')}.`,
    content: {
      'application/json': {
        schema: own ? { anyOf: [own.schema, schema] } : schema,
        examples: { ...(own?.example !== undefined && { answer: { value: own.example } }), ...examples },
      },
      ...others,
    },
  }
}
