import { z } from 'zod'
import { parseCursor } from '../../../db/cursor.ts'
import {
  countPrincipals,
  findPrincipal,
  listPrincipals,
  type PrincipalRecord,
} from '../../../db/principals/read.ts'
import { insertPrincipal, setActive, setCapabilities } from '../../../db/principals/write.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal, unprocessable } from '../../../plugins/refusal.ts'
import type { Actor } from '../../../plugins/secrets/admin-secret.ts'
import { json, type Reply } from '../../http/reply.ts'
import { type AdminContext, change } from '../change.ts'
import { checkIfMatch, etagOf } from '../etag.ts'
import { capabilities, displayName, parse, shortName } from '../parse.ts'
import { idOf, type Kind } from './kinds.ts'

/** How often a replacement of capabilities is tried again when somebody else's change came in between. */
const ATTEMPTS = 5

export type AdminRequest = Arrival & { readonly actor: Actor }
export type AdminBodyRequest = AdminRequest & JsonBody

const patch = z.strictObject({ capabilities })

/** POST /v1/admin/{users,workloads}: enrolls one without a certificate, which it gets by a request of its own (spec §4.2). */
export const createPrincipal = (context: AdminContext, kind: Kind) => {
  const body = z.strictObject({
    [kind.nameField]: shortName,
    display_name: displayName.nullish(),
    capabilities: capabilities.default([]),
  })
  return async (facts: AdminBodyRequest): Promise<Reply> => {
    // The computed key makes zod's type a mere record; these are what the schema above says.
    const asked = parse(body, facts.json) as Readonly<Record<string, unknown>>
    const name = String(asked[kind.nameField])
    const shownAs = asked.display_name as string | null | undefined
    const held = asked.capabilities as readonly string[]
    const id = idOf(kind, context.organisation, name)
    const statement = insertPrincipal(context.database, {
      type: kind.type,
      id,
      name,
      displayName: shownAs ?? null,
      capabilities: held,
      enrollmentMethod: 'csr',
      spiffeId: null,
      dpopJkt: null,
      federated: false,
      at: facts.at,
    })
    const detail = { subject: id, capabilities: held }
    await change(context, facts, { action: `${kind.type}.created`, detail, statements: [statement] })
    return answer(kind, await principalOf(context, kind, id), 201)
  }
}

/**
 * GET /v1/admin/{agents,users,workloads}: newest first; `?limit=&cursor=` pages it, and `Link: rel="next"` leads on.
 * Agents are a bare array, the others `{users: […], total}` (WIRE.md §2).
 */
export const listAll =
  ({ database }: AdminContext, kind: Kind) =>
  async ({ path, query }: AdminRequest): Promise<Reply> => {
    const asked = new URLSearchParams(query)
    const limit = limitOf(asked.get('limit'))
    const page = { limit, cursor: cursorOf(asked.get('cursor')) }
    const { items, nextCursor } = await listPrincipals(database, kind.type, page)
    const next = nextCursor && new URLSearchParams({ limit: String(limit), cursor: nextCursor }).toString()
    const list = items.map((record) => shown(kind, record))
    const body =
      kind.type === 'agent'
        ? list
        : { [kind.plural]: list, total: await countPrincipals(database, kind.type) }
    return json(200, body, next ? { link: `<${path}?${next}>; rel="next"` } : {})
  }

/** GET /v1/admin/{agents,users,workloads}/{id} */
export const getOne =
  (context: AdminContext, kind: Kind) =>
  async ({ params }: AdminRequest): Promise<Reply> =>
    answer(kind, await principalOf(context, kind, params.id))

/**
 * PATCH …/{id}/capabilities: replaces the whole set (spec §4.4), with one audit row in the same transaction.
 * With `If-Match` a set that changed since it was read is refused 412 and left alone.
 */
export const patchCapabilities =
  (context: AdminContext, kind: Kind) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const asked = parse(patch, facts.json)
    for (let attempt = 1; ; attempt += 1) {
      const record = await principalOf(context, kind, facts.params.id)
      checkIfMatch(facts.headers['if-match'], record)
      try {
        await replaceCapabilities(context, kind, facts, record, asked.capabilities)
        return answer(kind, await principalOf(context, kind, record.principal_id))
      } catch (error) {
        // Somebody else's change came between the read and the write: read again, and judge If-Match again.
        const again = error instanceof Refusal && error.reason === 'precondition_failed'
        if (!again || attempt === ATTEMPTS) throw error
      }
    }
  }

async function replaceCapabilities(
  context: AdminContext,
  { type }: Kind,
  facts: AdminBodyRequest,
  { principal_id: id, revision, capabilities: previous }: PrincipalRecord,
  next: readonly string[],
): Promise<void> {
  const statement = setCapabilities(context.database, {
    type,
    id,
    revision,
    capabilities: next,
    at: facts.at,
  })
  const detail = { subject: id, capabilities: next, previous }
  await change(context, facts, { action: `${type}.capabilities_patched`, detail, statements: [statement] })
}

/** DELETE …/{id} (204, the row is kept) and POST …/{id}/reactivate. */
export const setActivity =
  (context: AdminContext, kind: Kind, active: boolean) =>
  async (facts: AdminRequest): Promise<Reply> => {
    const record = await principalOf(context, kind, facts.params.id)
    const revision = checkIfMatch(facts.headers['if-match'], record)
    const { principal_id: id } = record
    if (record.is_active !== active) {
      await change(context, facts, {
        action: `${kind.type}.${active ? 'reactivated' : 'deactivated'}`,
        detail: { subject: id, capabilities: record.capabilities },
        statements: [setActive(context.database, { type: kind.type, id, active, revision, at: facts.at })],
      })
    }
    return active ? answer(kind, await principalOf(context, kind, id)) : { status: 204 }
  }

/** The principal of that id, or `not_found`. */
export async function principalOf(
  { database }: AdminContext,
  { type }: Kind,
  id: string | undefined,
): Promise<PrincipalRecord> {
  const record = id === undefined ? undefined : await findPrincipal(database, type, id)
  if (!record) throw new Refusal('not_found', { message: `There is no ${type} of this id.` })
  return record
}

/** A principal as callers see it (WIRE.md §2). The revision is the ETag, not a field. */
export function shown(
  kind: Kind,
  { principal_id, revision, ...rest }: PrincipalRecord,
): Record<string, unknown> {
  return { [kind.idField]: principal_id, [kind.nameField]: rest.name, ...rest }
}

export const answer = (
  kind: Kind,
  record: PrincipalRecord,
  status = 200,
  more: Record<string, unknown> = {},
): Reply => json(status, { ...shown(kind, record), ...more }, { etag: etagOf(record) })

function limitOf(text: string | null): number | undefined {
  if (text === null) return undefined
  const limit = Number(text)
  if (Number.isInteger(limit) && limit >= 1 && limit <= 1000) return limit
  throw unprocessable([{ field: 'limit', message: 'must be a whole number from 1 to 1000' }])
}

function cursorOf(text: string | null) {
  if (text === null) return undefined
  const parsed = parseCursor(text)
  if (!parsed.ok) throw unprocessable(parsed.errors)
  return parsed.cursor
}
