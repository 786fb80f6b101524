import { type ZodType, z } from 'zod'
import { capabilityMissing } from '../../../plugins/capability.ts'
import { printPath } from '../../../plugins/operator-files/explain-issue.ts'
import type { AdminCapability, TwoPersonKind } from '../../../plugins/operators/capabilities.ts'
import { Refusal, type RefusalReason, unprocessableBody } from '../../../plugins/refusal.ts'
import type { RehearsalChange, UnrehearsedChange } from './changes.ts'
import type { AdminCaller, AdminContext } from './context.ts'

export interface InputSchemas {
  readonly params?: z.ZodType
  readonly query?: z.ZodType
  readonly body?: z.ZodType
}

interface ChangeConditions {
  /** `If-Match` (RFC 9110 §13.1.1). Absent: any state of the object may be changed. */
  readonly ifMatch?: string | undefined
  /** `If-Rehearsed`: the rehearsal that a change rests on (docs/rehearsal.md#required). */
  readonly ifRehearsed?: string | undefined
  /** Why it is made even if it breaks an expectation (docs/rehearsal.md#expectations). */
  readonly forced?: string | undefined
}

export type RawInput<T extends InputSchemas> = ChangeConditions & {
  readonly [Part in keyof T]: T[Part] extends z.ZodType ? z.input<T[Part]> : never
}

export type ParsedInput<T extends InputSchemas> = ChangeConditions & {
  readonly [Part in keyof T]: T[Part] extends z.ZodType ? z.output<T[Part]> : never
}

/** A value that its reader does not change, as deep as it goes. */
type DeepReadonly<T> = T extends (...args: never[]) => unknown
  ? T
  : T extends object
    ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
    : T

export interface OperationResult<Output> {
  readonly value: DeepReadonly<Output>
  /** The state of the object that `value` shows. Over HTTP it is the ETag. */
  readonly revision?: number
  /** The HTTP status of what was not made, but shown. Absent: that of the operation. */
  readonly status?: 200
  /** The query of the next page. Null or absent: there is none. Over HTTP it is a `Link` header. */
  readonly next?: Readonly<Record<string, string>> | null
}

/**
 * One operation of administration, with its audit row if it changes something. It knows nothing of HTTP:
 * `proxy/admin/http/http.ts` binds it to a route; others use {@link perform}.
 */
export interface Operation<T extends InputSchemas, Output> {
  /** camelCase, unique. The `operationId` of `/openapi.json`. */
  readonly name: string
  /** The capability that its caller must hold (docs/operators.md#demands). */
  readonly demands: AdminCapability
  /** The action of its row, and of the row of a refusal. `admin.read` if it changes nothing. */
  readonly action: string
  /** Additional demands of this input. Absent: none. Asked again by `run` if they may change. */
  readonly alsoDemands?: (
    context: AdminContext,
    input: ParsedInput<T>,
  ) => readonly AdminCapability[] | Promise<readonly AdminCapability[]>
  /**
   * Finds the object that it changes, or refuses with `not_found`: a second operator confirms a change of the
   * same one. Absent: it makes one.
   */
  readonly object?: (context: AdminContext, input: ParsedInput<T>) => Promise<RevisionedObject>
  /** The change of authority that this input makes, as a rehearsal has it; none if it makes none. */
  readonly rehearses?: (
    context: AdminContext,
    input: ParsedInput<T>,
  ) => readonly RehearsalChange[] | Promise<readonly RehearsalChange[]>
  /** The change that it comes to for the calls of today, for a form to show: nobody demands its rehearsal. */
  readonly resembles?: (
    context: AdminContext,
    input: ParsedInput<T>,
  ) => readonly RehearsalChange[] | Promise<readonly RehearsalChange[]>
  /** The same if no rehearsal can describe it: it gives a permission that nobody has used yet. */
  readonly gives?: (
    context: AdminContext,
    input: ParsedInput<T>,
  ) => UnrehearsedChange | Promise<UnrehearsedChange>
  /** Does what `run` would do up to the change, which it does not make. Asked for by `?dry_run=true`. */
  readonly preview?: (
    context: AdminContext,
    input: ParsedInput<T>,
    caller: AdminCaller,
  ) => Promise<OperationResult<NoInfer<Output>>>
  /** The kind besides those of its demands (docs/operators.md#two-people). Absent: none. */
  readonly twoPersonKind?: TwoPersonKind
  /** Why it cannot wait for a second operator, and what to do instead, in a sentence. Absent: it can. */
  readonly cannotWait?: string
  /** True: it needs no second operator, though others with its demands do. It lets nobody do more. */
  readonly harmless?: boolean
  readonly summary: string
  readonly takes: T
  /** The shape of `value`. Checked in tests, not at each call. */
  readonly output: z.ZodType<Output>
  /** The HTTP status of success. */
  readonly status: 200 | 201 | 204
  /** The reasons of its own refusals, those of admission and of its input's schemas aside. */
  readonly reasons: readonly RefusalReason[]
  /** True: it honours `ifMatch`. */
  readonly conditional?: boolean
  /** True: its result carries a revision. */
  readonly revised?: boolean
  /** True: its result may have a next page. */
  readonly paged?: boolean
  /** The media type of a value that is a text as it comes, in pieces. Absent: JSON. */
  readonly media?: string
  /** True: `value` holds untrusted texts, in which nothing may hide from a terminal. */
  readonly fromStrangers?: boolean
  /** A body that works. */
  readonly example?: unknown
  readonly run: (
    context: AdminContext,
    input: ParsedInput<T>,
    caller: AdminCaller,
  ) => Promise<OperationResult<NoInfer<Output>>>
}

export type AnyOperation = Operation<InputSchemas, unknown>

/** Declares an operation. Its status is 200 if it names no other. */
export const operation = <T extends InputSchemas, Output>(
  declared: Omit<Operation<T, Output>, 'status'> & Partial<Pick<Operation<T, Output>, 'status'>>,
): Operation<T, Output> => ({ status: 200, ...declared })

interface EmptyOperation<T extends InputSchemas>
  extends Omit<Operation<T, undefined>, 'output' | 'status' | 'run'> {
  readonly run: (context: AdminContext, input: ParsedInput<T>, caller: AdminCaller) => Promise<unknown>
}

/** Declares an operation whose answer is empty. */
export const emptyOperation = <T extends InputSchemas>(
  declared: EmptyOperation<T>,
): Operation<T, undefined> => ({
  ...declared,
  output: z.undefined(),
  status: 204,
  run: async (context, input, caller) => {
    await declared.run(context, input, caller)
    return { value: undefined }
  },
})

type ReadDefaults = 'demands' | 'action' | 'status' | 'reasons'

/** Declares an operation that changes nothing: it demands `admin.read` if it names no other capability. */
export const readOperation = <T extends InputSchemas, Output>(
  declared: Omit<Operation<T, Output>, ReadDefaults> &
    Partial<Pick<Operation<T, Output>, 'demands' | 'reasons'>>,
): Operation<T, Output> => ({
  demands: 'admin.read',
  action: 'admin.read',
  status: 200,
  reasons: [],
  ...declared,
})

/**
 * Performs an operation for a caller that was let in, whether or not another one had to confirm it. Refuses
 * with `body_unprocessable`, `capability_missing`, or a reason of the operation's own.
 */
export async function perform<T extends InputSchemas, Output>(
  bound: Operation<T, Output>,
  context: AdminContext,
  given: RawInput<T>,
  caller: AdminCaller,
): Promise<OperationResult<Output>> {
  const { input, demanded } = await parseAndAuthorize(bound, context, given, caller)
  return bound.run(context, input, { ...caller, demanded })
}

/** Reads an input, and asks its caller for all that it demands. Refuses as {@link perform} does. */
export async function parseAndAuthorize<T extends InputSchemas, Output>(
  bound: Operation<T, Output>,
  context: AdminContext,
  given: RawInput<T>,
  caller: AdminCaller,
): Promise<{ readonly input: ParsedInput<T>; readonly demanded: readonly AdminCapability[] }> {
  const input = inputOf(bound.takes, given)
  const demanded = await demandedOf(bound, context, input)
  for (const capability of demanded) requireCapability(caller, capability)
  return { input, demanded }
}

const demandedOf = async <T extends InputSchemas, Output>(
  { demands, alsoDemands }: Operation<T, Output>,
  context: AdminContext,
  input: ParsedInput<T>,
): Promise<readonly AdminCapability[]> => [demands, ...((await alsoDemands?.(context, input)) ?? [])]

export function inputOf<T extends InputSchemas>(takes: T, given: RawInput<T>): ParsedInput<T> {
  const parts: Readonly<Record<string, unknown>> = given
  const parsed = Object.entries(takes).map(([part, schema]) => [part, parse(schema, parts[part])])
  // Each member was parsed by the schema of its name.
  const { ifMatch, forced } = given
  return { ...Object.fromEntries(parsed), ifMatch, ...(forced !== undefined && { forced }) } as ParsedInput<T>
}

/** Asks for a demand beyond the one of the route. Refuses with `capability_missing`. */
export function requireCapability({ actor }: Pick<AdminCaller, 'actor'>, capability: string): void {
  if (actor.capabilities.includes(capability)) return
  throw capabilityMissing(capability, `This also requires ${capability}. Ask an operator who holds it.`)
}

/** Refuses with `body_unprocessable`, naming every field that breaks a rule, unknown ones too. */
export function parse<T>(schema: ZodType<T>, part: unknown): T {
  const result = schema.safeParse(part)
  if (result.success) return result.data
  throw unprocessableBody(result.error.issues.flatMap(fieldErrors).slice(0, MAX_FIELDS))
}

function fieldErrors(issue: z.core.$ZodIssue): { field: string; message: string }[] {
  if (issue.code !== 'unrecognized_keys') return [{ field: fieldName(issue.path), message: issue.message }]
  return issue.keys.map((key) => ({
    field: fieldName([...issue.path, key]),
    message: 'is not a field of this request',
  }))
}

const fieldName = (path: readonly PropertyKey[]): string => printPath(path).slice(0, MAX_FIELD) || 'body'

/** Characters of a field's name in a refusal, and fields in one. */
const MAX_FIELD = 256
const MAX_FIELDS = 100

export interface RevisionedObject {
  readonly revision: number
}

export const etagOf = ({ revision }: RevisionedObject): string => `"${revision}"`

/**
 * Honours `If-Match` (RFC 9110 §13.1.1): refuses with `precondition_failed` if it names another state of the
 * object. Absent or `*` matches. Returns the revision that the write must still find, or undefined for any.
 */
export function checkIfMatch(ifMatch: string | undefined, record: RevisionedObject): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(record))) throw new Refusal('precondition_failed')
  return record.revision
}
