import { z } from 'zod'
import { type Issued, issueClientCertificate } from '../../certs/issue.ts'
import { printSpiffeId } from '../../certs/spiffe-id.ts'
import { parseCursor } from '../../db/cursor.ts'
import { insertPin, retirePins } from '../../db/pins.ts'
import { insertPrincipal, setActive, setCapabilities, touchRevision } from '../../db/principal-writes.ts'
import { findPrincipal, listPrincipals, type PrincipalRecord } from '../../db/principals.ts'
import type { Statement } from '../../db/statement.ts'
import type { Actor } from '../../plugins/admin-secret.ts'
import type { JsonBody } from '../../plugins/json-body.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal, unprocessable } from '../../plugins/refusal.ts'
import { json, type Reply } from '../reply.ts'
import { type AdminContext, change } from './change.ts'
import { checkIfMatch, etagOf } from './etag.ts'
import { capabilities, displayName, parse, shortName } from './parse.ts'

/** How long a minted client certificate is valid. Days. */
const LEAF_DAYS = 90
/** How often a replacement of capabilities is tried again when somebody else's change came in between. */
const ATTEMPTS = 5
const HOUR_MS = 3_600_000

type Asked = Arrival & { readonly actor: Actor }
type Sent = Asked & JsonBody

const newAgent = z.strictObject({
  agent_name: shortName,
  display_name: displayName.nullish(),
  capabilities: capabilities.default([]),
  federated: z.boolean().default(false),
})

const patch = z.strictObject({ capabilities })

const rotation = z.strictObject({ grace_hours: z.number().min(0).max(720).optional() })

/** POST /v1/admin/agents: mints a certificate and shows its key this once (spec §4.1). The service keeps no copy of the key. */
export const createAgent =
  (context: AdminContext) =>
  async (facts: Sent): Promise<Reply> => {
    const asked = parse(newAgent, facts.json)
    const agentId = `${context.organisation}::${asked.agent_name}`
    const minted = await mint(context, asked.agent_name, facts.at)
    const statements = [
      insertPrincipal(context.database, {
        type: 'agent',
        id: agentId,
        name: asked.agent_name,
        displayName: asked.display_name ?? null,
        capabilities: asked.capabilities,
        enrollmentMethod: 'minted',
        spiffeId: minted.spiffeId,
        dpopJkt: null,
        federated: asked.federated,
        at: facts.at,
      }),
      pinOf(context, agentId, minted.issued, facts.at),
    ]
    const detail = {
      subject: agentId,
      capabilities: asked.capabilities,
      cert_thumbprint: minted.issued.thumbprint,
      enrollment_method: 'minted',
    }
    await change(context, facts, { action: 'agent.created', detail, statements })
    const record = await agentOf(context, agentId)
    return json(201, { ...shown(record), ...credentials(minted.issued) }, { etag: etagOf(record) })
  }

/** GET /v1/admin/agents: a bare array, newest first; `?limit=&cursor=` pages it, and `Link: rel="next"` leads on (WIRE.md §2). */
export const listAgents =
  (context: AdminContext) =>
  async ({ path, query }: Asked): Promise<Reply> => {
    const asked = new URLSearchParams(query)
    const limit = limitOf(asked.get('limit'))
    const { items, nextCursor } = await listPrincipals(context.database, 'agent', {
      limit,
      cursor: cursorOf(asked.get('cursor')),
    })
    const next = nextCursor && new URLSearchParams({ limit: String(limit), cursor: nextCursor }).toString()
    return json(200, items.map(shown), next ? { link: `<${path}?${next}>; rel="next"` } : {})
  }

/** GET /v1/admin/agents/{id} */
export const getAgent =
  (context: AdminContext) =>
  async ({ params }: Asked): Promise<Reply> =>
    answer(await agentOf(context, params.id))

/**
 * PATCH /v1/admin/agents/{id}/capabilities: replaces the whole set (spec §4.4), with one audit row in the same transaction.
 * With `If-Match` a set that changed since it was read is refused 412 and left alone.
 */
export const patchAgentCapabilities =
  (context: AdminContext) =>
  async (facts: Sent): Promise<Reply> => {
    const asked = parse(patch, facts.json)
    for (let attempt = 1; ; attempt += 1) {
      const record = await agentOf(context, facts.params.id)
      checkIfMatch(facts.headers['if-match'], record)
      try {
        await replaceCapabilities(context, facts, record, asked.capabilities)
        return answer(await agentOf(context, record.principal_id))
      } catch (error) {
        // Somebody else's change came between the read and the write: read again, and judge If-Match again.
        const again = error instanceof Refusal && error.reason === 'precondition_failed'
        if (!again || attempt === ATTEMPTS) throw error
      }
    }
  }

async function replaceCapabilities(
  context: AdminContext,
  facts: Sent,
  record: PrincipalRecord,
  next: readonly string[],
): Promise<void> {
  const statement = setCapabilities(context.database, {
    type: 'agent',
    id: record.principal_id,
    revision: record.revision,
    capabilities: next,
    at: facts.at,
  })
  const detail = { subject: record.principal_id, capabilities: next, previous: record.capabilities }
  await change(context, facts, { action: 'agent.capabilities_patched', detail, statements: [statement] })
}

/** DELETE /v1/admin/agents/{id} (204, the row is kept) and POST …/reactivate. */
export const setAgentActive =
  (context: AdminContext, active: boolean) =>
  async (facts: Asked): Promise<Reply> => {
    const record = await agentOf(context, facts.params.id)
    checkIfMatch(facts.headers['if-match'], record)
    if (record.is_active !== active) {
      const { principal_id: id } = record
      await change(context, facts, {
        action: active ? 'agent.reactivated' : 'agent.deactivated',
        detail: { subject: id, capabilities: record.capabilities },
        statements: [setActive(context.database, { type: 'agent', id, active, at: facts.at })],
      })
    }
    return active ? answer(await agentOf(context, record.principal_id)) : { status: 204 }
  }

/**
 * POST /v1/admin/agents/{id}/rotate-cert: a new certificate and key; the previous one stays valid for `grace_hours`
 * (default: the pin plugin's `rotation_grace_hours`; 0 ends it at once).
 */
export const rotateAgentCertificate =
  (context: AdminContext) =>
  async (facts: Sent): Promise<Reply> => {
    const { grace_hours: hours = context.configuration().pin.rotation_grace_hours } = parse(
      rotation,
      facts.json,
    )
    const record = await agentOf(context, facts.params.id)
    const { issued } = await mint(context, record.name, facts.at)
    const graceUntil = hours === 0 ? null : facts.at + hours * HOUR_MS
    const id = record.principal_id
    await change(context, facts, {
      action: 'agent.cert_rotated',
      detail: { subject: id, cert_thumbprint: issued.thumbprint, previous: record.cert_thumbprint },
      statements: [
        retirePins(context.database, { type: 'agent', id, graceUntil }),
        pinOf(context, id, issued, facts.at),
        touchRevision(context.database, { type: 'agent', id, at: facts.at }),
      ],
    })
    const until = graceUntil === null ? null : new Date(graceUntil).toISOString()
    return json(200, { agent_id: id, ...credentials(issued), previous_valid_until: until })
  }

async function mint(
  context: AdminContext,
  name: string,
  at: number,
): Promise<{ issued: Issued; spiffeId: string }> {
  const { organisation, trustDomain, authority } = context
  const spiffeId = printSpiffeId({ trustDomain, org: organisation, name })
  const commonName = `${organisation}::${name}`
  return {
    spiffeId,
    issued: await issueClientCertificate(authority, { commonName, spiffeId }, { at, days: LEAF_DAYS }),
  }
}

const pinOf = (
  { database }: AdminContext,
  id: string,
  { thumbprint, notBefore, notAfter }: Issued,
  at: number,
): Statement => insertPin(database, { thumbprint, type: 'agent', id, notBefore, notAfter, at })

const credentials = ({ certPem, chainPem, privateKeyPem }: Issued): Record<string, string> => ({
  cert_pem: certPem,
  cert_chain_pem: chainPem,
  private_key_pem: privateKeyPem,
})

async function agentOf({ database }: AdminContext, id: string | undefined): Promise<PrincipalRecord> {
  const record = id === undefined ? undefined : await findPrincipal(database, 'agent', id)
  if (!record) throw new Refusal('not_found', { message: 'There is no agent of this id.' })
  return record
}

/** An agent as callers see it (WIRE.md §2). The revision is the ETag, not a field. */
function shown({ principal_id, revision, ...rest }: PrincipalRecord): Record<string, unknown> {
  return { agent_id: principal_id, agent_name: rest.name, ...rest }
}

const answer = (record: PrincipalRecord): Reply => json(200, shown(record), { etag: etagOf(record) })

function limitOf(text: string | null): number | undefined {
  if (text === null) return undefined
  const limit = Number(text)
  if (Number.isInteger(limit) && limit >= 1 && limit <= 1000) return limit
  throw unprocessable([{ field: 'limit', message: 'must be a whole number from 1 to 1000' }])
}

function cursorOf(text: string | null): ReturnType<typeof parsedCursor> | undefined {
  return text === null ? undefined : parsedCursor(text)
}

function parsedCursor(text: string) {
  const parsed = parseCursor(text)
  if (!parsed.ok) throw unprocessable(parsed.errors)
  return parsed.cursor
}
