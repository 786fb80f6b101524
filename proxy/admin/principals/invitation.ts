import { createHmac, hash, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'
import { type IssuedCredential, issueClientCertificate } from '../../../certs/authority/issue.ts'
import { readSecret, secretUnchanged } from '../../../db/operators/secret.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { type RowAssertion, timestamp } from '../../../db/support/statement.ts'
import type { AuthenticationMethod } from '../../../plugins/operators/actor.ts'
import { conflict, notFound, type Refusal } from '../../../plugins/refusal.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext, ChangeAuthorship } from '../operation/context.ts'
import { OPERATOR } from '../operation/kinds.ts'
import { checkIfMatch, operation } from '../operation/operation.ts'
import { idParams, instant } from '../operation/shapes.ts'
import { certificateSubject, certificateTerm, replacePin } from './certificates.ts'
import { principalByParams, principalOf } from './view.ts'

const ADMINISTERS = 'admin.operators'
/** The life of an invitation. ms. */
const LIFE_MS = 3_600_000
const MAX_CODE_LENGTH = 2_048

/**
 * The words of an invitation, in their order. The code is these and their MAC, and is stored nowhere: it is
 * used up, since the operator's revision is another one afterwards.
 */
const invitationWords = z.tuple([
  z.string().meta({ description: 'The id of the operator.' }),
  z.int().meta({ description: 'Its authority revision.' }),
  z.string().meta({ description: 'The inviter.' }),
  z.enum(['secret', 'certificate', 'oidc', 'socket']),
  z.union([z.int(), z.string()]).meta({ description: "The inviter's revision, or the mark of the secret." }),
  z.int().meta({ description: 'The end. ms since the epoch.' }),
])

type InvitationWords = z.output<typeof invitationWords>

const keyOf = ({ subjectKeys }: Pick<AdminContext, 'subjectKeys'>): Buffer =>
  subjectKeys.derived('invitations of operators')

const macOf = (key: Buffer, text: string): string =>
  createHmac('sha256', key).update(text).digest('base64url')

const printInvitation = (key: Buffer, words: InvitationWords): string => {
  const text = Buffer.from(JSON.stringify(words)).toString('base64url')
  return `${text}.${macOf(key, text)}`
}

/** Reads a code that this service has made; null: it is none. */
function parseInvitation(key: Buffer, code: string): InvitationWords | null {
  const [text = '', mac = ''] = code.length > MAX_CODE_LENGTH ? [] : code.split('.')
  const [given, own] = [Buffer.from(mac), Buffer.from(macOf(key, text))]
  if (given.length !== own.length || !timingSafeEqual(given, own)) return null
  return invitationWords.parse(JSON.parse(Buffer.from(text, 'base64url').toString()))
}

/** Names an invitation in rows. */
const digestOf = (code: string): string => hash('sha256', code).slice(0, 32)

/**
 * POST /v1/admin/operators/{id}/invitation: a code by which one person takes the operator's certificate, with
 * the set that it holds now (docs/operators.md#invitations).
 */
export const inviteOperator = operation({
  name: 'inviteOperator',
  demands: ADMINISTERS,
  action: 'admin.operator_invited',
  object: principalByParams(OPERATOR),
  cannotWait:
    'This change needs a second operator, but whoever has the link takes the certificate alone. Use a certificate request instead.',
  summary: 'Makes a link by which one person, once, takes the certificate of an operator. Good for an hour.',
  takes: { params: idParams },
  output: z.strictObject({
    path: z
      .string()
      .meta({ description: 'The path of the page, with its code: on any URL of administration.' }),
    expires_at: instant,
  }),
  status: 201,
  conditional: true,
  reasons: ['not_found', 'precondition_failed', 'conflict', 'audit_unavailable'],
  run: async (context, { params: { id }, ifMatch }, caller) => {
    const record = await principalOf(context, OPERATOR, id)
    checkIfMatch(ifMatch, record)
    const { authority_revision: revision, is_active: isActive } = record
    if (!isActive) throw conflict('This operator is deactivated. Reactivate it first.')
    const until = caller.at + LIFE_MS
    const { actor } = caller
    const via = invitationWords.def.items[3].parse(actor.via)
    const mark = await markOf(context, actor.id, via)
    const code = printInvitation(keyOf(context), [id, revision, actor.id, via, mark ?? '', until])
    const expires = timestamp(until)
    await commitChange(context, caller, {
      action: 'admin.operator_invited',
      detail: { subject: id, subject_type: 'operator', invitation: digestOf(code), until: expires },
      assertions: [authorityUnchanged(context.database)('operator', id, revision)],
      statements: [],
    })
    return { value: { path: `/proxy/invited?code=${code}`, expires_at: expires } }
  },
})

/** Marks the rights of an inviter: they are the same as long as it is. Null: it may not invite. */
async function markOf(
  context: Pick<AdminContext, 'database' | 'subjectKeys' | 'signsIn'>,
  id: string,
  via: AuthenticationMethod,
): Promise<number | string | null> {
  const { database, signsIn } = context
  if (via === 'socket') return id
  if (via === 'secret') {
    const { hash: stored, disabled } = await readSecret(database)
    return disabled ? null : macOf(keyOf(context), `secret ${stored}`)
  }
  const inviter = await findPrincipal(database, 'operator', id)
  const may = inviter?.is_active && inviter.capabilities.includes(ADMINISTERS)
  return may && (via !== 'oidc' || (await signsIn(inviter.name))) ? inviter.authority_revision : null
}

async function standingOf(
  { database }: Pick<AdminContext, 'database'>,
  [, , by, via, mark]: InvitationWords,
): Promise<readonly RowAssertion[]> {
  if (via === 'secret') return [secretUnchanged(database)((await readSecret(database)).hash)]
  return typeof mark === 'number' ? [authorityUnchanged(database)('operator', by, mark)] : []
}

export interface InvitationView {
  readonly operator: PrincipalRecord
  readonly invitedBy: string
  /** RFC 3339. */
  readonly until: string
}

const usedRefusal = (id: string): Refusal =>
  notFound(
    `This invitation was used already, or ${id} was changed after it was made. If it was not you who used it, tell whoever sent it; else ask for another.`,
  )

async function openInvitation(context: AdminContext, code: string, at: number) {
  const words = parseInvitation(keyOf(context), code)
  if (!words)
    throw notFound('This is not an invitation of this service. Open the whole link that you were sent.')
  const [id, revision, by, via, mark, until] = words
  if (at >= until) throw notFound(`This invitation ended at ${timestamp(until)}. Ask for another.`)
  const operator = await principalOf(context, OPERATOR, id)
  if (operator.authority_revision !== revision) throw usedRefusal(id)
  if ((await markOf(context, by, via)) !== mark)
    throw notFound(
      `${by}, who made this invitation, was changed after that, or may not invite any more. Ask for another.`,
    )
  return { words, operator }
}

/** Reads the invitation of a code, and uses nothing up. Refuses with `not_found` one that is not good. */
export async function readInvitation(
  context: AdminContext,
  code: string,
  at: number,
): Promise<InvitationView> {
  const { words, operator } = await openInvitation(context, code, at)
  const [, , invitedBy, , , until] = words
  return { operator, invitedBy, until: timestamp(until) }
}

/**
 * Makes the certificate and key of an invited operator, this once, in place of any before. Its row is by the
 * operator itself. Refuses as {@link readInvitation} does.
 */
export async function acceptInvitation(
  context: AdminContext,
  { id: requestId, at }: Pick<AdminCaller, 'id' | 'at'>,
  code: string,
): Promise<IssuedCredential & { readonly id: string }> {
  const { words, operator } = await openInvitation(context, code, at)
  const [id, revision, invitedBy] = words
  const standing = await standingOf(context, words)
  const caller: ChangeAuthorship = {
    ...{ id: requestId, at, actor: { id, type: 'operator', via: 'invitation', standing } },
    rowDetail: { invitation: digestOf(code), invited_by: invitedBy },
  }
  const subject = certificateSubject(context, OPERATOR, operator)
  const issued = await issueClientCertificate(await context.issuing(), subject, certificateTerm({ at }))
  await replacePin(context, OPERATOR, caller, issued, {
    action: 'operator.cert_rotated',
    id,
    hours: 0,
    ifMatch: undefined,
    guard: (record) => {
      if (record.authority_revision !== revision) throw usedRefusal(id)
    },
  })
  return { ...issued, id }
}
