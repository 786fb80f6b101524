import { z } from 'zod'
import { parseCursor } from '../../../db/cursor.ts'
import { endSessionsOf } from '../../../db/operators/sessions.ts'
import { authorityDetail } from '../../../db/principals/authority.ts'
import { countPrincipals, listPrincipals, type PrincipalRecord } from '../../../db/principals/read.ts'
import { insertPrincipal, setActive } from '../../../db/principals/write.ts'
import { newPseudonym } from '../../../db/pseudonym.ts'
import { namesUnchanged } from '../../../db/settings.ts'
import { turn } from '../../../plugins/turns.ts'
import { by, change } from '../change.ts'
import type { AdminContext, Caller } from '../context.ts'
import { enrolling, granting } from '../demands.ts'
import { inParts } from '../in-parts.ts'
import { DONE, operation } from '../operation.ts'
import { ofOperators, ownerStays } from '../operators/owners.ts'
import { adminCapabilities, capabilities, displayName, shortName } from '../parse.ts'
import type { Change } from '../rehearsals/changes.ts'
import { changeAuthority, newSubjectKey } from './authority.ts'
import { AGENT, idOf, type Kind } from './kinds.ts'
import { isFound, parseSearch } from './search.ts'
import { answer, objectOf, PRINCIPAL, type PrincipalView, principalOf, shown } from './view.ts'

/** The variable segments of a principal's paths. */
export const params = z.object({ id: z.string() })

interface NewPrincipal {
  readonly name: string
  readonly display_name?: string | null | undefined
  readonly capabilities: readonly string[]
}

/**
 * The body of an enrollment without a certificate: the name stands under the field that the kind has for it.
 */
const newPrincipal = (kind: Kind) => {
  const { nameField } = kind
  return (
    z
      .strictObject({
        [nameField]: shortName,
        display_name: displayName.nullish(),
        capabilities: setOf(kind).default([]),
      })
      // zod takes a computed key for any key; these are what the schema above says.
      .transform(({ [nameField]: name, ...rest }) => ({ name, ...rest }) as NewPrincipal)
  )
}

/** The change of a principal as a rehearsal has it: none of an operator, whose calls are of administration. */
export async function changeOf(
  context: AdminContext,
  kind: Kind,
  id: string,
  change: (principal: string) => Change,
): Promise<readonly Change[]> {
  await principalOf(context, kind, id)
  return kind.type === 'operator' ? [] : [change(id)]
}

/** What a principal of this kind may hold. */
export const setOf = ({ type }: Kind) => (type === 'operator' ? adminCapabilities : capabilities)

/**
 * POST /v1/admin/{users,workloads,operators}: enrolls one without a certificate, which it gets by a request of its own
 * (spec §4.2).
 */
export const createPrincipal = (kind: Kind) =>
  operation({
    name: `create${kind.noun}`,
    demands: enrolling(kind),
    action: `${kind.type}.created`,
    alsoDemands: (_context, { body }) => (body.capabilities.length > 0 ? [granting(kind)] : []),
    summary: `Enrolls a ${kind.type} without a certificate, which it gets by a request of its own.`,
    takes: { body: newPrincipal(kind) },
    output: PRINCIPAL[kind.type],
    status: 201,
    revised: true,
    ...(kind.type !== 'operator' && {
      gives: ({ organisation }: AdminContext, { body }: { readonly body: NewPrincipal }) => ({
        principal: { principal_id: idOf(kind, organisation, body.name), capabilities: body.capabilities },
      }),
    }),
    reasons: ['conflict', 'audit_unavailable'],
    example: {
      [kind.nameField]: 'ada',
      capabilities: kind.type === 'operator' ? ['admin.read'] : ['llm.chat'],
    },
    run: async (context, { body: { name, display_name: displayName, capabilities: held } }, caller) => {
      const { type } = kind
      const id = idOf(kind, context.organisation, name)
      const ref = type === 'user' ? newPseudonym() : id
      const principal = {
        type,
        id,
        ref,
        name,
        displayName: displayName ?? null,
        capabilities: held,
        enrollmentMethod: 'csr',
        spiffeId: null,
        dpopJkt: null,
        federated: false,
        ...by(caller),
      } as const
      const state = { capabilities: held, is_active: true, thumbprints: [], dpop_jkts: [] }
      await change(context, caller, {
        action: `${type}.created`,
        detail: authorityDetail(
          { principal_ref: ref, enrollment_method: 'csr', spiffe_id: null },
          FIRST_REVISION,
          state,
        ),
        assertions: [namesUnchanged(context.database, context)],
        statements: [insertPrincipal(context.database, principal), newSubjectKey(context, principal)],
      })
      return answer(kind, await principalOf(context, kind, id))
    },
  })

/** The authority revision of who is enrolled for the first time. */
const FIRST_REVISION = 1

/** What somebody looks for (docs/dashboard.md#search). */
const searched = z
  .string()
  .max(256)
  .transform((text, context) => {
    const parsed = parseSearch(text)
    if (parsed.ok) return { text, search: parsed.search }
    context.addIssue({ code: 'custom', message: parsed.message })
    return z.NEVER
  })
  .meta({
    type: 'string',
    description:
      'Words of the name or id, `cap:TOKEN`, `expires:30d`, `unused:30d`, `is:active`, `is:inactive`, `is:empty`.',
    examples: ['cap:llm.chat unused:30d'],
  })

const limit = z
  .string()
  .transform(Number)
  .refine(
    (count) => Number.isInteger(count) && count >= 1 && count <= 1000,
    'must be a whole number from 1 to 1000',
  )
  .meta({ type: 'integer', minimum: 1, maximum: 1000 })

const page = z
  .object({ limit: limit.exactOptional(), cursor: z.string().exactOptional(), q: searched.exactOptional() })
  .transform(({ limit: count, cursor: text, q }, context) => {
    const parsed = text === undefined ? undefined : parseCursor(text)
    if (!parsed || parsed.ok) return { limit: count, cursor: parsed?.cursor, q }
    for (const { field, message } of parsed.errors)
      context.addIssue({ code: 'custom', path: [field], message })
    return z.NEVER
  })

/**
 * GET /v1/admin/agents: newest first, a bare array (docs/protocol.md#principals); `?limit=&cursor=` pages it,
 * and `next` leads on.
 */
export const listAgents = operation({
  name: 'listAgents',
  demands: 'admin.read',
  action: 'admin.read',
  summary: 'Lists the agents, newest first.',
  takes: { query: page },
  output: z.array(PRINCIPAL.agent),
  status: 200,
  paged: true,
  reasons: [],
  run: async (context, { query }, { at }) => {
    const { list, next } = await pageOf(context, AGENT, query, at)
    return { value: list, next }
  },
})

/** A page of users, workloads or operators, and how many there are in all. */
interface Listed {
  readonly users?: readonly PrincipalView[]
  readonly workloads?: readonly PrincipalView[]
  readonly operators?: readonly PrincipalView[]
  readonly total: number
}

/**
 * GET /v1/admin/{users,workloads,operators}: as {@link listAgents}, but a hundred at once, `{users: […], total}`
 * (docs/protocol.md#principals).
 */
export const listPrincipalsOf = (kind: Kind) =>
  operation({
    name: `list${kind.noun}s`,
    demands: 'admin.read',
    action: 'admin.read',
    summary: `Lists the ${kind.plural}, newest first.`,
    takes: { query: page },
    output: z.strictObject({
      [kind.plural]: z.array(PRINCIPAL[kind.type]),
      total: z.int(),
      // zod takes a computed key for any key; it is one of those above.
    }) as unknown as z.ZodType<Listed>,
    status: 200,
    paged: true,
    reasons: [],
    run: async (context, { query }, { at }) => {
      const { list, next } = await pageOf(context, kind, { ...query, limit: query.limit ?? USUAL }, at)
      return {
        value: { [kind.plural]: list, total: await countPrincipals(context.database, kind.type) },
        next,
      }
    },
  })

/** The principals of a page where nobody asks for another number. */
const USUAL = 100

/** Principals that are shown at once. */
const AT_ONCE = 500

async function pageOf({ database }: AdminContext, kind: Kind, query: z.output<typeof page>, at: number) {
  const { q, ...asked } = query
  const wanted = q && ((record: PrincipalRecord) => isFound(q.search, record, at))
  const { items, nextCursor: cursor } = await listPrincipals(database, kind.type, { ...asked, wanted }, turn)
  const again = { limit: String(query.limit), ...(q && { q: q.text }) }
  return {
    list: await inParts(items, AT_ONCE, (record) => shown(kind, record)),
    next: cursor === null ? null : { ...again, cursor },
  }
}

/** GET /v1/admin/{agents,users,workloads,operators}/{id} */
export const getOne = (kind: Kind) =>
  operation({
    name: `get${kind.noun}`,
    demands: 'admin.read',
    action: 'admin.read',
    summary: `Shows the ${kind.type} of that id.`,
    takes: { params },
    output: PRINCIPAL[kind.type],
    status: 200,
    revised: true,
    reasons: ['not_found'],
    run: async (context, { params: { id } }) => answer(kind, await principalOf(context, kind, id)),
  })

/** DELETE …/{id}: takes a principal out of service. Its row is kept. */
export const deactivate = (kind: Kind) =>
  operation({
    name: `deactivate${kind.noun}`,
    demands: enrolling(kind),
    action: `${kind.type}.deactivated`,
    object: objectOf(kind),
    summary: `Takes the ${kind.type} out of service at once. It stays on record.`,
    takes: { params },
    output: z.undefined(),
    status: 204,
    conditional: true,
    rehearses: (context, { params: { id } }) =>
      changeOf(context, kind, id, (principal) => ({ principal, is_active: false })),
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable', ...ofOperators(kind)],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      await setActivity(context, kind, caller, id, ifMatch, false)
      return DONE
    },
  })

/** POST …/{id}/reactivate */
export const reactivate = (kind: Kind) =>
  operation({
    name: `reactivate${kind.noun}`,
    demands: enrolling(kind),
    action: `${kind.type}.reactivated`,
    object: objectOf(kind),
    summary: `Takes the ${kind.type} back into service.`,
    takes: { params },
    gives: (_context, { params: { id } }) => ({ principal: { principal_id: id, is_active: true } }),
    output: PRINCIPAL[kind.type],
    status: 200,
    conditional: true,
    revised: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      await setActivity(context, kind, caller, id, ifMatch, true)
      return answer(kind, await principalOf(context, kind, id))
    },
  })

async function setActivity(
  context: AdminContext,
  kind: Kind,
  caller: Caller,
  id: string,
  ifMatch: string | undefined,
  active: boolean,
): Promise<void> {
  const { type } = kind
  const { database } = context
  await changeAuthority(context, kind, caller, { id, ifMatch }, async (record) => {
    if (record.is_active === active) return null
    const next = { is_active: active }
    return {
      action: `${type}.${active ? 'reactivated' : 'deactivated'}`,
      next,
      detail: {},
      assertions: await ownerStays(context, caller.at, record, next),
      statements: [
        setActive(database, { type, id, active, revision: record.revision, ...by(caller) }),
        // Who was erased has none.
        newSubjectKey(context, { type, id, ref: record.principal_ref }),
        // Nobody who is taken back finds a browser signed in.
        ...(type === 'operator' ? [endSessionsOf(database, id)] : []),
      ],
    }
  })
}
