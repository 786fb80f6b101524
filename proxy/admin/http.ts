import { Readable } from 'node:stream'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import type { RefusalReason } from '../../plugins/refusal.ts'
import type { Actor } from '../../plugins/secrets/admin-secret.ts'
import type { RouteDoc } from '../http/doc.ts'
import type { Reply } from '../http/reply.ts'
import { visibleJson } from '../visible.ts'
import type { AdminContext } from './context.ts'
import { type Given, type Operation, perform, type Result, type Takes } from './operation.ts'
import { etagOf } from './parse.ts'

type AdminRequest = Arrival & { readonly actor: Actor }

/** The facts that an operation's route must have established: a body where the operation takes one. */
export type FactsOf<T extends Takes> = T extends { readonly body: unknown }
  ? AdminRequest & JsonBody
  : AdminRequest

/** Binds an operation to HTTP: its input out of the facts of a request, its result into a reply. */
export const bind =
  <T extends Takes, Output>(bound: Operation<T, Output>, context: AdminContext) =>
  async (facts: AdminRequest & Partial<JsonBody>): Promise<Reply> =>
    replyOf(bound, await perform(bound, context, givenBy(facts), facts), facts.path)

/** As {@link bind}, for a route whose callers are nobody in particular: `actor` stands in the audit row. */
export const bindAs =
  <T extends Takes, Output>(actor: Actor, bound: Operation<T, Output>, context: AdminContext) =>
  (facts: Arrival & Partial<JsonBody>): Promise<Reply> =>
    bind(bound, context)({ ...facts, actor })

function givenBy<T extends Takes>(facts: AdminRequest & Partial<JsonBody>): Given<T> {
  const { params, query, headers, json: body } = facts
  const given = { params, body, query: Object.fromEntries(new URLSearchParams(query)) }
  // Only what the operation has a schema for is looked at, and that only by its schema.
  return { ...given, ifMatch: headers['if-match'] } as unknown as Given<T>
}

function replyOf<T extends Takes, Output>(
  { status, media, fromStrangers }: Operation<T, Output>,
  { value, revision, next }: Result<Output>,
  path: string,
): Reply {
  if (status === 204) return { status }
  const headers = {
    'content-type': media ?? 'application/json',
    ...(revision !== undefined && { etag: etagOf({ revision }) }),
    ...(next && { link: `<${path}?${new URLSearchParams(next).toString()}>; rel="next"` }),
  }
  if (media !== undefined) {
    // The one kind of result that is no value: pieces of text (the audit).
    const pieces = value as AsyncIterable<Uint8Array>
    return { status, headers, body: { source: Readable.from(pieces, { objectMode: false }) } }
  }
  const text = JSON.stringify(value)
  return { status, headers, body: fromStrangers ? visibleJson(text) : text }
}

/** The refusals of administration before an operation is reached. */
const ADMISSION: readonly RefusalReason[] = ['admin_secret_invalid', 'admin_throttled', 'overloaded']
const BODY: readonly RefusalReason[] = ['body_invalid', 'body_too_large']

/** Describes the route of an operation. */
export function docOf<T extends Takes, Output>(
  bound: Operation<T, Output>,
  caller: 'operator' | 'anyone' = 'operator',
): RouteDoc {
  const { name, summary, takes, status, output: schema, media, reasons, example } = bound
  const { query, body } = takes
  const unprocessable: readonly RefusalReason[] = query || body ? ['body_unprocessable'] : []
  return {
    name,
    summary,
    caller,
    ...(query && { query }),
    ...(bound.conditional && { headers: { 'If-Match': 'The ETag of the object that was read.' } }),
    ...(body && { body: { schema: body, ...(example !== undefined && { example }) } }),
    answers: {
      [status]:
        status === 204
          ? { description: 'Done.' }
          : {
              description: 'The result.',
              content: [{ schema, ...(media !== undefined && { media }) }],
              headers: headersOf(bound),
            },
    },
    reasons: [
      ...(caller === 'operator' ? ADMISSION : []),
      ...(body ? BODY : []),
      ...unprocessable,
      ...reasons,
    ],
  }
}

const headersOf = ({ revised, paged }: Pick<Operation<Takes, unknown>, 'revised' | 'paged'>) => ({
  ...(revised && { ETag: 'The state of the object: for If-Match.' }),
  ...(paged && { Link: 'The next page, where there is one.' }),
})
