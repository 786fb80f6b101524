import { z } from 'zod'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { type ChangePreview, previewShape } from '../conditions/run.ts'
import type { AdminContext } from '../operation/context.ts'
import { AGENT, OPERATOR, type PrincipalKind, USER, WORKLOAD } from '../operation/kinds.ts'
import { author, capabilityToken, instant, sha256 } from '../operation/shapes.ts'

interface PrincipalIdentifiers {
  readonly agent_id?: string
  readonly agent_name?: string
  readonly principal_id?: string
  /** A user's pseudonym, by which the ledger knows it. */
  readonly principal_ref?: string
  readonly user_name?: string
  readonly workload_name?: string
  readonly operator_name?: string
}

type SchemaMembers = Readonly<Record<string, z.ZodType>>
type Shape<M extends SchemaMembers> = z.ZodType<PrincipalIdentifiers & z.output<z.ZodObject<M>>>

/** The shape of an object that holds the id of a principal in addition to `members`, as its kind calls it. */
export const withId = <M extends SchemaMembers>({ idField }: PrincipalKind, members: M): Shape<M> =>
  // zod takes a computed key for any key; it is one of those above.
  z.strictObject({ [idField]: z.string(), ...members }) as unknown as Shape<M>

/** Like {@link withId}, with the name too. */
export const withName = <M extends SchemaMembers>(
  { idField, nameField }: PrincipalKind,
  members: M,
): Shape<M> =>
  z.strictObject({ [idField]: z.string(), [nameField]: z.string(), ...members }) as unknown as Shape<M>

/** The members of every principal (docs/protocol.md#principals). */
export const PRINCIPAL_MEMBERS = {
  principal_type: z.enum(['agent', 'user', 'workload', 'operator']),
  name: z.string(),
  display_name: z.string().nullable(),
  capabilities: z.array(capabilityToken),
  labels: z.record(z.string(), z.string()).meta({ examples: [{ team: 'red' }] }),
  capability_set: z
    .string()
    .nullable()
    .meta({ description: 'The named set that it was given last; null: none. What it holds is its own.' }),
  is_active: z.boolean(),
  enrollment_method: z.string().meta({ examples: ['minted', 'csr', 'byoca', 'spiffe'] }),
  spiffe_id: z.string().nullable(),
  cert_thumbprint: sha256.nullable(),
  cert_not_after: instant.nullable(),
  previous_cert_until: instant
    .nullable()
    .meta({ description: 'Until when certificates before it are honoured, or were; null: they are not.' }),
  dpop_jkt: z.string().nullable().meta({ description: 'RFC 7638 thumbprint of the key of its proofs.' }),
  previous_dpop_jkt: z.string().nullable().meta({ description: 'The key before.' }),
  previous_dpop_jkt_until: instant.nullable().meta({ description: 'Until when that is honoured, or was.' }),
  federated: z.boolean(),
  federation_revision: z.int(),
  created_at: instant,
  updated_at: instant,
  last_seen_at: instant.nullable(),
  created_by: author,
  changed_by: author,
}

const PSEUDONYM = z
  .string()
  .regex(/^usr_[a-z2-7]{26}$/)
  .meta({ description: 'Its name in the ledger.' })

const membersOf = ({ type }: PrincipalKind) => ({
  ...PRINCIPAL_MEMBERS,
  ...(type === 'user' && { principal_ref: PSEUDONYM }),
})

const shapeOf = (kind: PrincipalKind): Shape<typeof PRINCIPAL_MEMBERS> =>
  withName(kind, membersOf(kind)).meta({ id: kind.noun })

const previewedOf = (kind: PrincipalKind) =>
  withName(kind, { ...membersOf(kind), rehearsal: previewShape.exactOptional() })

export const PRINCIPAL_SHAPES: Readonly<Record<PrincipalType, Shape<typeof PRINCIPAL_MEMBERS>>> = {
  agent: shapeOf(AGENT),
  user: shapeOf(USER),
  workload: shapeOf(WORKLOAD),
  operator: shapeOf(OPERATOR),
}

/** The same, with the preview of a change of its set, if that was asked for. */
export const PREVIEW_SHAPES: Readonly<
  Record<PrincipalType, z.ZodType<PrincipalView & { readonly rehearsal?: ChangePreview }>>
> = {
  agent: previewedOf(AGENT),
  user: previewedOf(USER),
  workload: previewedOf(WORKLOAD),
  operator: previewedOf(OPERATOR),
}

export type PrincipalView = z.output<(typeof PRINCIPAL_SHAPES)[PrincipalType]>

export const principalIdMember = (kind: PrincipalKind, id: string): PrincipalIdentifiers => ({
  [kind.idField]: id,
})

export const principalView = (
  kind: PrincipalKind,
  {
    principal_id: id,
    principal_ref: ref,
    revision: _,
    authority_revision: __,
    candidate: ___,
    cert_issuer: ____,
    ...rest
  }: PrincipalRecord,
): PrincipalIdentifiers & Omit<PrincipalRecord, HiddenColumns> => ({
  ...principalIdMember(kind, id),
  ...(kind.type === 'user' && { principal_ref: ref }),
  [kind.nameField]: rest.name,
  ...rest,
})

type HiddenColumns =
  | 'principal_id'
  | 'principal_ref'
  | 'revision'
  | 'authority_revision'
  | 'candidate'
  | 'cert_issuer'

export const principalResult = (kind: PrincipalKind, record: PrincipalRecord) => ({
  value: principalView(kind, record),
  revision: record.revision,
})

export async function principalOf(
  { database }: AdminContext,
  { type }: PrincipalKind,
  id: string,
): Promise<PrincipalRecord> {
  const record = await findPrincipal(database, type, id)
  if (!record) throw notFound(`There is no ${type} with this id. GET /v1/admin/${type}s lists them.`)
  return record
}

export const principalByParams =
  (kind: PrincipalKind) =>
  (context: AdminContext, { params: { id } }: { readonly params: { readonly id: string } }) =>
    principalOf(context, kind, id)
