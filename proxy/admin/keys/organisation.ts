import { X509Certificate } from 'node:crypto'
import { z } from 'zod'
import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import { isAnythingIssued, nothingIssued } from '../../../db/principals/issued.ts'
import { insertSetting, readSetting, writeSetting } from '../../../db/settings.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { conflict, unprocessableBody } from '../../../plugins/refusal.ts'
import type { OrganisationNames } from '../../boot/names.ts'
import { DOT_SEGMENTS, ORGANISATION_PATTERN, TRUST_DOMAIN_PATTERN } from '../../boot/settings.ts'
import { commitChanges } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { operation, readOperation } from '../operation/operation.ts'
import { pemText } from '../operation/shapes.ts'
import { attachment, prepareCaAttachment } from './cas.ts'

/** Null: it is asked for. */
const fixedBy = z.enum(['environment', 'certificates']).nullable()

const organisation = z.strictObject({
  organisation: z.string(),
  trust_domain: z.string(),
  organisation_fixed_by: fixedBy,
  trust_domain_fixed_by: fixedBy,
  ca_pem: pemText,
  ca_fingerprint: z.string().meta({ description: 'SHA-256 of the certificate, as browsers show it.' }),
})

export const showOrganisation = readOperation({
  name: 'getOrganisation',
  summary: 'Shows organisation, trust domain and CA, and whether they can still be chosen.',
  takes: {},
  output: organisation.extend({ answered: z.boolean() }),
  run: async (context) => {
    const value = organisationView(context, context.authority.rootsPem, await fixedIn(context))
    return { value: { ...value, answered: await isAnswered(context) } }
  },
})

const org = z
  .string()
  .regex(ORGANISATION_PATTERN, 'must be 1 to 53 of the characters a-z, A-Z, 0-9, ".", "_" and "-"')
  .refine((name) => !DOT_SEGMENTS.test(name), 'must not be . or ..')

const trustDomain = z
  .string()
  .regex(TRUST_DOMAIN_PATTERN, 'must be 1 to 255 of the characters a-z, 0-9, ".", "_" and "-"')
  // In the name constraint of the CA it would stand for everything below it.
  .refine((name) => !name.startsWith('.'), 'must not begin with a dot')

const answer = z.strictObject({
  /** Absent, like the trust domain: unchanged. */
  org: org.exactOptional(),
  trust_domain: trustDomain.exactOptional(),
  /** A CA of the organisation's own, to be trusted for enrollment. Absent: none. */
  attach: attachment.exactOptional(),
})

/** `remade`: whether the CA was made again. */
const organisationResult = organisation.extend({ remade: z.boolean() })

/**
 * PUT /v1/admin/ca/organisation: answers, once, for both names. If they change the CA is made again in the
 * same transaction, only while nothing rests on the one before; then every process uses it. Refuses a second
 * answer with `conflict`.
 */
export const setOrganisation = operation({
  name: 'setOrganisation',
  demands: 'admin.settings',
  action: 'service.organisation_set',
  twoPersonKind: 'trust',
  summary: 'Names organisation and trust domain, once. If a name changes, makes a new CA for them.',
  takes: { body: answer },
  output: organisationResult,
  example: { org: 'initech', trust_domain: 'initech.example' },
  reasons: [
    'conflict',
    'precondition_failed',
    'ca_attached_already',
    'audit_unavailable',
    ...CERTIFICATE_REASONS,
  ],
  run: async (context, { body }, caller) => {
    const { naming } = context
    const { at } = caller
    if (await isAnswered(context))
      throw conflict('The organisation has already been named. Keep its name: certificates contain it.')
    const fixed = await fixedIn(context)
    const names = newNames(context, body, fixed)
    const remade = names.organisation !== context.organisation || names.trustDomain !== context.trustDomain
    if (remade && context.authority.rotation !== null)
      throw conflict('The CA is being replaced. Finish that first, or cancel it.')
    const attached = body.attach && (await prepareCaAttachment(context, body.attach, at))
    const made = remade ? await naming.makeAuthority(names, at) : null
    const value = {
      ...organisationView({ ...context, ...names }, made?.rootPem ?? context.authority.rootsPem, fixed),
      remade,
    }
    await commitChanges(context, caller, {
      // The new CA would lock out anybody enrolled at the same moment.
      assertions: remade ? [nothingIssued(context.database)] : [],
      statements: [
        insertSetting(context.database, 'organisation_set', timestamp(at), at),
        ...(made ? [...settingStatements(context, names, at), ...made.statements] : []),
        ...(attached?.statements ?? []),
      ],
      notes: [noteOf(value), ...(attached ? [attached] : [])],
    })
    if (remade) await naming.follow()
    return { value }
  },
})

const settingStatements = (
  { database }: AdminContext,
  { organisation: name, trustDomain: domain }: OrganisationNames,
  at: number,
) => [writeSetting(database, 'organisation', name, at), writeSetting(database, 'trust_domain', domain, at)]

const noteOf = ({
  organisation: name,
  trust_domain: domain,
  ca_fingerprint: fingerprint,
  remade,
}: z.output<typeof organisationResult>) => ({
  action: 'service.organisation_set',
  detail: {
    organisation: name,
    trust_domain: domain,
    ca_sha256: fingerprint.replaceAll(':', '').toLowerCase(),
    remade,
  },
})

const isAnswered = async ({ database }: AdminContext): Promise<boolean> =>
  (await readSetting(database, 'organisation_set')) !== undefined

type FixedNameReason = z.output<typeof fixedBy>

interface FixedNames {
  readonly org: FixedNameReason
  readonly trustDomain: FixedNameReason
}

async function fixedIn({ database, naming }: AdminContext): Promise<FixedNames> {
  const issued = (await isAnythingIssued(database)) ? 'certificates' : null
  return {
    org: naming.fixed.org ? 'environment' : issued,
    trustDomain: naming.fixed.trustDomain ? 'environment' : issued,
  }
}

/** The names that an answer makes. Refuses with `body_unprocessable` one that changes a fixed name. */
function newNames(
  context: AdminContext,
  { org: name, trust_domain: domain }: z.output<typeof answer>,
  fixed: FixedNames,
) {
  const problems = [
    ...fixedNameErrors('org', name, context.organisation, fixed.org),
    ...fixedNameErrors('trust_domain', domain, context.trustDomain, fixed.trustDomain),
  ]
  if (problems.length > 0) throw unprocessableBody(problems)
  return { organisation: name ?? context.organisation, trustDomain: domain ?? context.trustDomain }
}

function fixedNameErrors(field: string, value: string | undefined, now: string, by: FixedNameReason) {
  if (by === null || value === undefined || value === now) return []
  const why = by === 'environment' ? 'the environment sets it' : 'certificates already contain it'
  return [{ field, message: `cannot be changed: ${why}` }]
}

const organisationView = (
  { organisation: name, trustDomain: domain }: Pick<AdminContext, 'organisation' | 'trustDomain'>,
  rootPem: string,
  fixed: FixedNames,
) => ({
  organisation: name,
  trust_domain: domain,
  organisation_fixed_by: fixed.org,
  trust_domain_fixed_by: fixed.trustDomain,
  ca_pem: rootPem,
  ca_fingerprint: new X509Certificate(rootPem).fingerprint256,
})
