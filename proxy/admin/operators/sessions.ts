import { z } from 'zod'
import {
  endStoredSession as deleted,
  listStoredSessions as listed,
  type StoredSession,
  sessionsByPrefix,
} from '../../../db/operators/sessions.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { isRecentlyUsed, sessionEnd } from '../../../plugins/operators/sessions.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { commitChanges } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { emptyOperation, readOperation, requireCapability } from '../operation/operation.ts'
import { capabilityToken, idParams, instant } from '../operation/shapes.ts'

const operator = z.string().meta({ description: 'An operator, or `admin`: whoever has the secret.' })
const amr = z
  .array(z.string())
  .meta({ description: 'How the identity provider authenticated the operator (RFC 8176).' })

/**
 * GET /v1/admin/session: who calls, and by which door. `csrf` goes with a browser's changes in
 * `X-Csrf-Token`; null without a session.
 */
export const showSession = readOperation({
  name: 'getSession',
  summary: "Shows who is calling, and what the caller's browser must send with changes.",
  takes: {},
  output: z.strictObject({
    operator: z.string(),
    via: z.string(),
    amr,
    capabilities: z.array(capabilityToken),
    csrf: z.string().nullable(),
    expires_at: instant.nullable(),
  }),
  run: (_context, _input, { actor, session }) =>
    Promise.resolve({
      value: {
        operator: actor.id,
        via: actor.via,
        amr: session?.amr ?? [],
        capabilities: actor.capabilities,
        csrf: session?.csrf ?? null,
        expires_at: session ? timestamp(session.expiresAt) : null,
      },
    }),
})

const ID_DIGITS = 16

const id = z.string().regex(/^[0-9a-f]{16}$/, 'must be the id of a session')

const ownerOf = ({ principal_id: principalId }: StoredSession): string => principalId ?? 'admin'

const ADMINISTERS = 'admin.operators'

/**
 * GET /v1/admin/sessions: newest first, 500 at most: all, or those of one `operator`, to who may end them; to
 * others their own.
 */
export const listAdminSessions = readOperation({
  name: 'listSessions',
  summary: 'Lists the sessions of browsers: all sessions with admin.operators, else those of the caller.',
  takes: { query: z.strictObject({ operator: operator.exactOptional() }) },
  output: z.strictObject({
    sessions: z.array(
      z.strictObject({
        id,
        operator,
        via: z.enum(['oidc', 'secret', 'certificate']),
        amr,
        created_at: instant,
        used_at: instant,
        expires_at: instant,
        current: z.boolean(),
      }),
    ),
  }),
  run: async ({ database, sessionRules }, { query: { operator: asked } }, { at, actor, session }) => {
    const all = actor.capabilities.includes(ADMINISTERS)
    const whose = all ? asked : actor.id
    const found = await listed(database, whose === undefined ? undefined : { principalId: idOf(whose) })
    const live = found.filter(
      (one) => at < sessionEnd(one, sessionRules) && isRecentlyUsed(one, sessionRules, at),
    )
    return {
      value: {
        sessions: live.map((one) => ({
          id: one.id_sha256.slice(0, ID_DIGITS),
          operator: ownerOf(one),
          via: one.via,
          // Proven by the table: an array of texts.
          amr: JSON.parse(one.amr) as readonly string[],
          created_at: one.created_at,
          used_at: one.used_at,
          expires_at: timestamp(sessionEnd(one, sessionRules)),
          current: one.id_sha256 === session?.digest,
        })),
      },
    }
  },
})

const idOf = (name: string): string | null => (name === 'admin' ? null : name)

export const endAdminSession = emptyOperation({
  name: 'endSession',
  demands: 'admin.read',
  action: 'admin.signed_out',
  summary: "Ends a session at once: one of the caller's own, or with admin.operators any session.",
  takes: { params: idParams },
  reasons: ['not_found', 'audit_unavailable'],
  run: async (context, { params }, caller) => {
    const found = id.safeParse(params.id).success ? await sessionsByPrefix(context.database, params.id) : []
    const isOwn = found.length > 0 && found.every((one) => ownerOf(one) === caller.actor.id)
    if (!isOwn) requireCapability(caller, ADMINISTERS)
    if (found.length === 0)
      throw notFound('There is no session with this id. GET /v1/admin/sessions lists them.')
    await end(context, caller, found)
  },
})

const end = (context: AdminContext, caller: AdminCaller, found: readonly StoredSession[]): Promise<void> =>
  commitChanges(context, caller, {
    statements: found.map(({ id_sha256 }) => deleted(context.database, id_sha256)),
    notes: found.map((one) => ({
      action: 'admin.signed_out',
      detail: {
        by: ownerOf(one) === caller.actor.id ? 'itself' : 'operator',
        session: one.id_sha256.slice(0, 8),
        of: ownerOf(one),
      },
    })),
  })
