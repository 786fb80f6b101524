import type { JsonObject } from '../../../db/json.ts'
import { forgetSessions, insertSession } from '../../../db/operators/sessions.ts'
import type { Assertion } from '../../../db/statement.ts'
import type { Author } from '../../../plugins/operators/actor.ts'
import { SESSION_COOKIE, setCookie } from '../../../plugins/operators/cookies.ts'
import type { SessionRules, Sessions } from '../../../plugins/operators/sessions.ts'
import { change } from '../../admin/change.ts'
import type { AdminContext } from '../../admin/context.ts'

/** How somebody has signed in. */
interface Beginning {
  /** The request's id. */
  readonly id: string
  /** ms since the epoch. */
  readonly at: number
  readonly author: Author
  readonly via: 'oidc' | 'secret' | 'certificate'
  /** Null: nobody in particular, by the secret. */
  readonly principalId: string | null
  readonly marks: readonly string[]
  readonly amr: readonly string[]
  /** The person, and the session that it has with the identity provider. */
  readonly issuer: string | null
  readonly subject: string | null
  readonly providerSession: string | null
  /** What must be so when the session begins. */
  readonly assertions: readonly Assertion[]
  readonly detail: JsonObject
}

/** The first digits of a session's digest, by which rows know it. */
export const ROW_DIGITS = 8

/**
 * Begins a session, with its row `admin.sign_in`: both or neither. Returns its cookie. The id is new, whatever the
 * browser has brought along.
 */
export async function beginSession(
  context: AdminContext,
  sessions: Sessions,
  { absoluteMs }: Pick<SessionRules, 'absoluteMs'>,
  begun: Beginning,
): Promise<string> {
  const { database } = context
  const { id: requestId, at, author, detail } = begun
  const { id, digest } = sessions.newId()
  const session = {
    id_sha256: digest,
    principal_id: begun.principalId,
    via: begun.via,
    amr: begun.amr,
    issuer: begun.issuer,
    subject: begun.subject,
    provider_session: begun.providerSession,
    mapped_by: JSON.stringify(begun.marks),
    at,
    expiresAt: at + absoluteMs,
  }
  await change(
    context,
    { id: requestId, at, actor: author },
    {
      action: 'admin.sign_in',
      detail: { ...detail, session: digest.slice(0, ROW_DIGITS) },
      assertions: begun.assertions,
      statements: [forgetSessions(database, at), insertSession(database, session)],
    },
  )
  return setCookie(SESSION_COOKIE, id, 'Strict')
}
