import { Readable } from 'node:stream'
import { z } from 'zod'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import { mediaWeight } from '../../../plugins/json-body/media-weight.ts'
import type { ActingOperator } from '../../../plugins/operators/actor.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { type RefusalReason, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { BodyDoc, RouteDoc } from '../../http/doc.ts'
import { jsonReply, type Reply, type StreamedBody } from '../../http/reply.ts'
import { escapeHiddenJson } from '../../visible.ts'
import type { ProposedChange } from '../conditions/propose.ts'
import type { InputSchemas, Operation, OperationResult, RawInput } from '../operation/operation.ts'
import { etagOf, parse } from '../operation/operation.ts'
import { instant } from '../operation/shapes.ts'
import type { AdministrationContext, AdminRequest } from '../pipeline.ts'
import { administerOnRecord } from './administer.ts'

/** The facts that an operation's route must have established: a body if the operation takes one. */
export type OperationFacts<T extends InputSchemas> = T extends { readonly body: unknown }
  ? AdministrationFacts & JsonBody
  : AdministrationFacts

export const bindOperation =
  <T extends InputSchemas, Output>(bound: Operation<T, Output>, context: AdministrationContext) =>
  async (facts: AdminRequest & Partial<JsonBody>): Promise<Reply> => {
    const done = await administerOnRecord(bound, context, givenBy(facts), facts)
    return 'proposed' in done ? proposedReply(done) : replyOf(bound, done, facts.path)
  }

/**
 * Binds two forms of one operation: the second if the caller names its media type, and JSON no sooner, or its
 * last word as `?format=`.
 */
export function bindByAccept<T extends InputSchemas, Output, Other>(
  usual: Operation<T, Output>,
  other: Operation<T, Other>,
  context: AdministrationContext,
) {
  const [plain, special] = [bindOperation(usual, context), bindOperation(other, context)]
  const media = other.media ?? '\0'
  return (facts: AdminRequest & Partial<JsonBody>): Promise<Reply> => {
    const format = new URLSearchParams(facts.query).get('format')
    const asksOther =
      format === null ? isAsked(facts.headers.accept ?? '', media) : media.endsWith(`/${format}`)
    return asksOther ? special(facts) : plain(facts)
  }
}

function isAsked(accept: string, media: string): boolean {
  const weight = accept.toLowerCase().includes(media) ? mediaWeight(accept, media) : 0
  const named = accept.toLowerCase().includes(JSON_TYPE)
  return weight > 0 && (!named || weight >= mediaWeight(accept, JSON_TYPE))
}

const JSON_TYPE = 'application/json'

/** Like {@link bindOperation}, for a route of nobody in particular: `actor` stands in the audit row. */
export const bindAs =
  <T extends InputSchemas, Output>(
    actor: ActingOperator,
    bound: Operation<T, Output>,
    context: AdministrationContext,
  ) =>
  (facts: Arrival & Partial<JsonBody>): Promise<Reply> =>
    bindOperation(bound, context)({ ...facts, actor })

const proposal = z
  .strictObject({ proposal_id: z.string(), expires_at: instant, rehearsal: z.string().nullable() })
  .meta({ id: 'Proposed' })

const proposedReply = ({ proposed }: ProposedChange): Reply =>
  jsonReply(202, {
    proposal_id: proposed.proposal_id,
    expires_at: proposed.expires_at,
    rehearsal: proposed.rehearsal_id,
  })

function givenBy<T extends InputSchemas>(facts: AdminRequest & Partial<JsonBody>): RawInput<T> {
  const { params, query, headers, json: body } = facts
  const given = { params, body, query: Object.fromEntries(new URLSearchParams(query)) }
  // Reads only parts that the operation has a schema for, and those only by their schemas.
  const ifRehearsed = headers['if-rehearsed']
  const forced = forcedIn(given.query)
  return {
    ...given,
    ifMatch: headers['if-match'],
    ifRehearsed,
    ...(forced !== undefined && { forced }),
  } as unknown as RawInput<T>
}

const FORCE = {
  force: z.enum(['true', 'false']).exactOptional().meta({
    description: 'True: make the change even if it breaks an expectation. Its row says so.',
  }),
  reason: z
    .string()
    .regex(
      /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,500}$/u,
      'must say why in 1 to 500 characters, without control characters',
    )
    .exactOptional()
    .meta({ description: 'Why the change is forced.' }),
}

/** Why a change is forced; undefined: it is not. Refuses with `body_unprocessable` if there is no reason. */
function forcedIn(query: Readonly<Record<string, string>>): string | undefined {
  if (query.force === undefined) return undefined
  const { force, reason } = parse(z.object(FORCE), query)
  if (force !== 'true') return undefined
  if (reason === undefined)
    throw unprocessableBody([{ field: 'reason', message: 'must say why if force is true' }])
  return reason
}

function replyOf<T extends InputSchemas, Output>(
  { status: success, media, fromStrangers }: Operation<T, Output>,
  { value, revision, next, status: shown }: OperationResult<Output>,
  path: string,
): Reply {
  const status = shown ?? success
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
  const written = (text: string): string => (fromStrangers ? escapeHiddenJson(text) : text)
  return { status, headers, body: jsonBody(value, written) }
}

/** The text that is written at once. Characters. */
const PIECE = 65_536

/** JSON as a body: whole if it is short, else a stream, which gives others their turn after each piece. */
function jsonBody(value: unknown, written: (text: string) => string): string | StreamedBody {
  const parts = partsOf(value)
  const [first, whole] = pieceOf(parts)
  if (whole) return written(first)
  return { source: Readable.from(jsonPieces(first, parts, written), { objectMode: false }) }
}

async function* jsonPieces(
  first: string,
  parts: Iterator<string>,
  written: (text: string) => string,
): AsyncGenerator<string> {
  let [text, last] = [first, false]
  while (!last) {
    yield written(text)
    await eventLoopTurn()
    ;[text, last] = pieceOf(parts)
  }
  yield written(text)
}

/** So many parts as make a piece, and whether they were the last. */
function pieceOf(parts: Iterator<string>): [text: string, last: boolean] {
  let text = ''
  while (text.length < PIECE) {
    const part = parts.next()
    if (part.done) return [text, true]
    text += part.value
  }
  return [text, false]
}

/** The JSON text of a value, the members of its lists one by one: of a list, and of those in an object. */
function* partsOf(value: unknown): Generator<string, undefined> {
  if (Array.isArray(value)) return yield* listParts(value)
  if (typeof value !== 'object' || value === null) return yield JSON.stringify(value)
  let before = '{'
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue
    yield `${before}${JSON.stringify(name)}:`
    if (Array.isArray(member)) yield* listParts(member)
    else yield JSON.stringify(member)
    before = ','
  }
  yield before === '{' ? '{}' : '}'
}

function* listParts(list: readonly unknown[]): Generator<string, undefined> {
  let before = '['
  for (const member of list) {
    yield before + JSON.stringify(member)
    before = ','
  }
  yield before === '[' ? '[]' : ']'
}

/** The refusals of administration before an operation is reached. */
const ADMISSION: readonly RefusalReason[] = [
  'admin_secret_invalid',
  'admin_throttled',
  'csrf_invalid',
  'origin_not_allowed',
  'principal_deactivated',
  'capability_missing',
  'overloaded',
]
const BODY: readonly RefusalReason[] = ['body_invalid', 'body_encoded', 'body_too_large']

/** Describes the route of an operation. `other`: its form in another media type, on the same route. */
export function docOf<T extends InputSchemas, Output, Other = never>(
  bound: Operation<T, Output>,
  caller: 'operator' | 'anyone' = 'operator',
  other?: Operation<T, Other>,
): RouteDoc {
  const { name, summary, takes, status, output: schema, media, reasons, example } = bound
  const { body } = takes
  const mayBreak = bound.rehearses !== undefined || bound.gives !== undefined
  // Every query of an operation is an object.
  const own = takes.query as z.ZodObject | undefined
  const query = mayBreak ? z.object({ ...own?.shape, ...FORCE }) : takes.query
  const wrong: readonly RefusalReason[] = query || body ? ['body_unprocessable'] : []
  return {
    name,
    summary,
    caller,
    ...(caller === 'operator' && { demands: bound.demands }),
    ...(query && { query }),
    ...conditionsOf(bound),
    ...(body && { body: { schema: body, ...(example !== undefined && { example }) } }),
    answers: {
      [status]:
        status === 204
          ? { description: 'Done.' }
          : {
              description: 'The result.',
              content: [{ schema, ...(media !== undefined && { media }) }, ...alternativeBody(other)],
              headers: headersOf(bound),
            },
      ...(bound.preview &&
        status === 201 && {
          200: { description: 'With `dry_run`: what would be made.', content: [{ schema }] },
        }),
      ...(mayWait(bound) && {
        202: {
          description: 'The change is waiting for a second operator (docs/operators.md#two-people).',
          content: [{ schema: proposal }],
        },
      }),
    },
    reasons: [
      ...(caller === 'operator' ? ADMISSION : []),
      ...(mayNeedTwo(bound) ? SECOND_OPERATOR_REASONS : []),
      ...(bound.rehearses ? REHEARSED : []),
      ...(body ? BODY : []),
      ...wrong,
      ...(mayBreak ? BROKEN : []),
      ...reasons,
    ],
  }
}

const alternativeBody = <T extends InputSchemas, Other>(
  other: Operation<T, Other> | undefined,
): readonly BodyDoc[] => (other?.media === undefined ? [] : [{ schema: other.output, media: other.media }])

const conditionsOf = <T extends InputSchemas, Output>({ conditional, rehearses }: Operation<T, Output>) => {
  const headers = {
    ...(conditional && { 'If-Match': 'The ETag of the object that was read.' }),
    ...(rehearses && { 'If-Rehearsed': 'The rehearsal of this change, at most 15 minutes old.' }),
  }
  return Object.keys(headers).length > 0 ? { headers } : {}
}

const REHEARSED: readonly RefusalReason[] = ['rehearsal_required', 'not_found', 'precondition_failed']

const BROKEN: readonly RefusalReason[] = ['expectation_broken']

const SECOND_OPERATOR_REASONS: readonly RefusalReason[] = [
  'two_people_required',
  'proposals_full',
  'not_found',
  'precondition_failed',
]

const mayNeedTwo = <T extends InputSchemas, Output>({
  demands,
  alsoDemands,
  harmless,
  action,
}: Operation<T, Output>) =>
  action !== 'admin.read' &&
  !harmless &&
  (alsoDemands !== undefined || ['admin.grant', 'admin.tools', 'admin.operators'].includes(demands))

const mayWait = <T extends InputSchemas, Output>(bound: Operation<T, Output>): boolean =>
  mayNeedTwo(bound) && bound.cannotWait === undefined

const headersOf = ({ revised, paged }: Pick<Operation<InputSchemas, unknown>, 'revised' | 'paged'>) => ({
  ...(revised && { ETag: 'The state of the object, for If-Match.' }),
  ...(paged && { Link: 'The next page, if there is one.' }),
})
