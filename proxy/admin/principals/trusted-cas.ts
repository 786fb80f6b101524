import { z } from 'zod'
import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import { listAttachedCas } from '../../../db/principals/attached-cas.ts'
import { caDigests } from '../../../db/principals/ca-texts.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import {
  type PreviousBundle,
  type SpiffePrincipal,
  spiffePrincipal,
  staleFollowers,
} from '../../../db/principals/spiffe.ts'
import {
  agentsTrustingOnlyFirst,
  copyCaTrust,
  distrustCa,
  trustCa,
  trustedCasOf,
} from '../../../db/principals/trusted-cas.ts'
import { replaceSpiffeBundle } from '../../../db/principals/write.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import { conflict, notFound, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { certificateThread } from '../operation/certificate-thread.ts'
import { changeAuthor, commitChange, commitChanges, retryIfOvertaken } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { AGENT } from '../operation/kinds.ts'
import { emptyOperation, type OperationResult, operation } from '../operation/operation.ts'
import { author, idParams, instant, passedOverBlocks, passedOverOf, sha256 } from '../operation/shapes.ts'
import { graceHours, graceUntil, serializedByPrincipal, withLatestPrincipal } from './authority.ts'
import { givenPem, trustBundleOf } from './enroll.ts'
import { withoutAccess } from './principals.ts'
import { principalByParams, principalOf } from './view.ts'

const digest = z.string().regex(/^[0-9a-f]{64}$/, 'must be the SHA-256 of a CA, in lower-case hex')

const ownCa = z.strictObject({ digest: sha256, subject: z.string(), not_after: instant })

const trustedCas = z
  .strictObject({
    own_bundle: z
      .boolean()
      .meta({ description: 'True: it has a bundle of its own, in addition to the attached CAs.' }),
    follows: z
      .strictObject({ name: z.string(), read_at: instant.nullable(), problem: z.string().nullable() })
      .nullable()
      .meta({
        description: 'The followed bundle that its own one is a copy of, as this gateway has read it.',
      }),
    bundle: z.array(ownCa).meta({ description: 'The CAs of its own.' }),
    previous_bundles: z
      .array(z.strictObject({ valid_until: instant, cas: z.array(ownCa) }))
      .meta({ description: 'Bundles that were replaced and are still honoured, newest first.' }),
    cas: z.array(
      z.strictObject({
        digest: sha256,
        subject: z.string(),
        not_after: instant,
        trusted_at: instant,
        trusted_by: author,
      }),
    ),
  })
  .meta({ id: 'TrustedCas' })

/** The CAs that vouch for an agent, as operations show them. */
export type TrustedCasView = OperationResult<z.output<typeof trustedCas>>['value']

export const listTrustedCas = operation({
  name: 'listAgentTrustedCas',
  demands: 'admin.read',
  action: 'admin.read',
  summary: 'Lists the CAs that vouch for an agent that is identified by its SPIFFE id.',
  takes: { params: idParams },
  output: trustedCas,
  reasons: ['not_found'],
  run: async (context, { params: { id } }, { at }) => ({ value: await trustedCasView(context, id, at) }),
})

/**
 * POST /v1/admin/agents/{id}/trusted-cas: has an attached CA vouch for an agent: any SVID of its id that
 * chains to that CA is this agent, from the next request on (docs/protocol.md#trusted-cas). Refuses with
 * `conflict` if it does already, and if the agent is not known by its SPIFFE id.
 */
export const trustCaForAgent = operation({
  name: 'trustCaForAgent',
  demands: 'admin.enroll',
  action: 'ca.trusted',
  twoPersonKind: 'trust',
  object: principalByParams(AGENT),
  summary:
    'Lets an attached CA vouch for an agent: an SVID with its id, issued by that CA, is then this agent.',
  takes: { params: idParams, body: z.strictObject({ digest }) },
  output: trustedCas,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  example: { digest: 'f'.repeat(64) },
  run: (context, { params: { id }, body }, caller) =>
    serializedByPrincipal(context, AGENT, id, async () => {
      const { database } = context
      const record = await principalOf(context, AGENT, id)
      await spiffeAgent(context, record)
      await checkAttached(context, body)
      await commitChange(
        context,
        caller,
        {
          action: 'ca.trusted',
          detail: { digest: body.digest, subjects: [record.principal_ref] },
          statements: [trustCa(database, id, { digest: body.digest, ...changeAuthor(caller) })],
        },
        'conflict',
      )
      return { value: await trustedCasView(context, id, caller.at) }
    }),
})

export const distrustCaForAgent = emptyOperation({
  name: 'distrustCaForAgent',
  demands: 'admin.enroll',
  action: 'ca.distrusted',
  twoPersonKind: 'trust',
  object: principalByParams(AGENT),
  summary: 'Stops a CA from vouching for an agent.',
  takes: { params: idParams.extend({ digest: z.string() }) },
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  resembles: async (context, { params: { id, digest: gone } }) => {
    const known = await findSpiffeAgent(context, await principalOf(context, AGENT, id))
    const others = (await trustedCasOf(context.database, id)).filter((ca) => ca.digest !== gone)
    return known?.bundlePem !== null || others.length > 0 ? [] : withoutAccess(context, AGENT, id)
  },
  run: async (context, { params: { id, digest: gone } }, caller) => {
    const { database } = context
    const record = await principalOf(context, AGENT, id)
    const found = (await trustedCasOf(database, id)).some(({ digest: one }) => one === gone)
    if (!found)
      throw notFound(
        'No CA with this digest vouches for this agent. GET its trusted-cas lists those that do.',
      )
    await commitChange(context, caller, {
      action: 'ca.distrusted',
      detail: { digest: gone, subjects: [record.principal_ref] },
      statements: [distrustCa(database, id, gone)],
    })
  },
})

/** The agents that one row names. */
const PORTION = 200

/**
 * POST /v1/admin/agents/trusted-cas: has an attached CA vouch for every agent that another one vouches for,
 * deactivated ones too, so that a CA can be replaced without an outage (docs/protocol.md#trusted-cas). All of
 * them, or none.
 */
export const trustReplacementCa = operation({
  name: 'trustCaAs',
  demands: 'admin.enroll',
  action: 'ca.trusted',
  twoPersonKind: 'trust',
  summary: 'Lets an attached CA vouch for every agent that another CA vouches for.',
  takes: { body: z.strictObject({ digest, as: digest }) },
  output: z.strictObject({ agents: z.int() }),
  reasons: ['precondition_failed', 'audit_unavailable'],
  example: { digest: 'f'.repeat(64), as: '0'.repeat(64) },
  run: async (context, { body: { digest: added, as: other } }, caller) => {
    const { database } = context
    await checkAttached(context, { digest: added, as: other })
    const count = await retryIfOvertaken(
      () => agentsTrustingOnlyFirst(database, other, added, eventLoopTurn),
      async (agents) => {
        if (agents.length === 0) return 0
        await commitChanges(context, caller, {
          statements: [
            copyCaTrust(database, other, agents.length, { digest: added, ...changeAuthor(caller) }),
          ],
          notes: portionsOf(agents, PORTION).map((subjects) => ({
            action: 'ca.trusted',
            detail: { digest: added, as: other, subjects },
          })),
        })
        return agents.length
      },
    )
    return { value: { agents: count } }
  },
})

/** The bundles that are honoured after their replacement, and their characters: each may be asked at a call. */
const MAX_PREVIOUS_BUNDLES = 4
const MAX_PREVIOUS_PEM = 256 * 1024

/**
 * PUT /v1/admin/agents/{id}/trust-bundle: the CAs of the agent's own, in place of those before, which count
 * for the grace; null for none (docs/protocol.md#trust-bundle).
 */
export const replaceTrustBundle = operation({
  name: 'replaceTrustBundle',
  demands: 'admin.enroll',
  action: 'ca.bundle_replaced',
  twoPersonKind: 'trust',
  object: principalByParams(AGENT),
  summary: 'Replaces the trust bundle of an agent that is identified by its SPIFFE id.',
  takes: {
    params: idParams,
    body: z
      .strictObject({
        trust_bundle_pem: givenPem.nullable().optional(),
        follow: z.string().optional().meta({ description: 'A trust bundle of the configuration.' }),
        grace_hours: graceHours.optional(),
      })
      .refine((body) => (body.trust_bundle_pem === undefined) !== (body.follow === undefined), {
        message: 'is required, or follow, and not both',
        path: ['trust_bundle_pem'],
      }),
  },
  output: trustedCas.extend({ passed_over: passedOverBlocks }),
  conditional: true,
  revised: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable', ...CERTIFICATE_REASONS],
  run: async (context, { params: { id }, body, ifMatch }, caller) => {
    const { database } = context
    const { trust_bundle_pem: given = null, follow, grace_hours: hours } = body
    if (follow !== undefined && !context.trustBundles().has(follow))
      throw unprocessableBody([{ field: 'follow', message: 'is no trust bundle of 10-pin.yaml' }])
    const { pem, passedOver } =
      given === null ? { pem: null, passedOver: [] } : await trustBundleOf(given, caller.at)
    const odd = passedOverOf(passedOver)
    const until = graceUntil(context, caller.at, hours)
    await withLatestPrincipal(context, AGENT, { id, ifMatch }, async (record) => {
      const known = await spiffeAgent(context, record)
      const { principal_ref: subject } = record
      // Until it is read, the one before stays.
      const bundlePem = follow === undefined ? pem : known.bundlePem
      if (follow === undefined && pem === null && (await trustedCasOf(database, id)).length === 0)
        throw conflict('No attached CA vouches for this agent: without its bundle nobody could call as it.')
      const to = { bundlePem, follows: follow ?? null, until, ...changeAuthor(caller) }
      const { detail, statement } = await bundleChange(database, known, subject, to)
      await commitChange(context, caller, {
        action: 'ca.bundle_replaced',
        detail: { ...detail, ...odd },
        statements: [statement],
      })
    })
    const { revision } = await principalOf(context, AGENT, id)
    return { value: { ...(await trustedCasView(context, id, caller.at)), ...odd }, revision }
  },
})

export const endPreviousBundles = emptyOperation({
  name: 'endPreviousBundles',
  demands: 'admin.enroll',
  action: 'ca.bundle_replaced',
  twoPersonKind: 'trust',
  object: principalByParams(AGENT),
  summary: 'Ends the trust bundles of an agent that were replaced and are still in their grace.',
  takes: { params: idParams },
  conditional: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { id }, ifMatch }, caller) => {
    const { database } = context
    await withLatestPrincipal(context, AGENT, { id, ifMatch }, async (record) => {
      const known = await spiffeAgent(context, record)
      const { principal_ref: subject } = record
      if (!known.previousBundles().some(([, end]) => caller.at < Date.parse(end)))
        throw notFound('No earlier bundle of this agent is honoured.')
      const { bundlePem, follows } = known
      const to = { bundlePem, follows, until: null, ...changeAuthor(caller) }
      const { detail, statement } = await bundleChange(database, known, subject, to)
      const change = { action: 'ca.bundle_replaced', detail, statements: [statement] }
      await commitChange(context, caller, change)
    })
  },
})

interface BundleState {
  readonly bundlePem: string | null
  readonly follows: string | null
  /** The end of the grace of the one before. ms since the epoch; null: none. */
  readonly until: number | null
  readonly at: number
  readonly by?: string
}

async function bundleChange(
  database: AdminContext['database'],
  known: SpiffePrincipal,
  subject: string,
  { bundlePem, follows, until, at, by }: BundleState,
) {
  const replaced = known.bundlePem === bundlePem ? null : known.bundlePem
  const ends = replaced === null || until === null ? null : new Date(until).toISOString()
  const previous = until === null ? [] : previousBundles(known, { replaced, ends, at })
  const { principal_id: id, revision } = known
  return {
    detail: {
      subject,
      digests: await digestsOf(bundlePem),
      previous: await digestsOf(known.bundlePem),
      previous_valid_until: ends,
      previous_bundles: previous.map(([, end, digests]) => [digests, end]),
      ...((follows ?? known.follows) !== null && { follows }),
    },
    statement: replaceSpiffeBundle(database, { id, revision, bundlePem, previous, follows, at, by }),
  }
}

/**
 * Puts the CAs of a followed bundle in force for agents that follow it, each with grace and a row. `hours`: of
 * grace. One that is changed at the same time gets them in the next round.
 */
export async function putFollowedBundle(
  {
    database,
    ledger,
    configDigest,
    rotationGraceHours,
  }: Pick<AdminContext, 'database' | 'ledger' | 'configDigest' | 'rotationGraceHours'>,
  {
    name,
    pem,
    hours,
    at,
  }: { readonly name: string; readonly pem: string; readonly hours: number | undefined; readonly at: number },
): Promise<void> {
  const until = graceUntil({ rotationGraceHours }, at, hours)
  for (const spiffeId of await staleFollowers(database, name, pem)) {
    const known = await spiffePrincipal(database, spiffeId)
    if (known?.follows !== name) continue
    const to = { bundlePem: pem, follows: name, until, at }
    const { detail, statement } = await bundleChange(database, known, known.principal_ref, to)
    try {
      const entry = noteEntry({ action: 'ca.bundle_replaced', detail }, at, configDigest)
      await ledger.commit({ statements: [statement], entries: [entry] })
    } catch (error) {
      if (!(error instanceof LedgerError && error.code === 'conflict')) throw error
    }
  }
}

/** Returns those that are honoured from now on: as many of the newest as there is room for. */
function previousBundles(
  known: { readonly previousBundles: () => readonly PreviousBundle[] },
  {
    replaced,
    ends,
    at,
  }: { readonly replaced: string | null; readonly ends: string | null; readonly at: number },
): readonly PreviousBundle[] {
  const newest: readonly PreviousBundle[] =
    replaced === null || ends === null ? [] : [[replaced, ends, caDigests(replaced)]]
  const all = [...newest, ...known.previousBundles().filter(([, until]) => at < Date.parse(until))]
  const isWithin = (count: number): boolean =>
    all.slice(0, count).reduce((length, [pem]) => length + pem.length, 0) <= MAX_PREVIOUS_PEM
  return all.slice(0, MAX_PREVIOUS_BUNDLES).filter((_, index) => isWithin(index + 1))
}

const knownCas = async (pem: string | null) =>
  pem === null ? [] : await certificateThread.ask('knownCaCertificates', pem)

const digestsOf = async (pem: string | null): Promise<readonly string[]> =>
  (await knownCas(pem)).map(({ digest: one }) => one)

const ownCasOf = async (pem: string | null) =>
  (await knownCas(pem)).map(({ digest: one, subject, notAfter }) => ({
    digest: one,
    subject,
    not_after: new Date(notAfter).toISOString(),
  }))

async function trustedCasView(context: AdminContext, id: string, at: number) {
  const { database } = context
  const known = await findSpiffeAgent(context, await principalOf(context, AGENT, id))
  const previous = (known?.previousBundles() ?? []).filter(([, until]) => at < Date.parse(until))
  return {
    own_bundle: (known?.bundlePem ?? null) !== null,
    follows: followedView(context, known?.follows ?? null),
    bundle: await ownCasOf(known?.bundlePem ?? null),
    previous_bundles: await Promise.all(
      previous.map(async ([pem, until]) => ({ valid_until: until, cas: await ownCasOf(pem) })),
    ),
    cas: await trustedCasOf(database, id),
  }
}

function followedView({ trustBundles }: AdminContext, name: string | null) {
  if (name === null) return null
  const bundles = trustBundles()
  const { readAt = null, problem = null } = bundles.get(name) ?? {}
  const told = bundles.has(name)
    ? problem
    : 'The configuration has no trust bundle of this name. Add it to trust_bundles in 10-pin.yaml.'
  return { name, read_at: readAt === null ? null : new Date(readAt).toISOString(), problem: told }
}

async function findSpiffeAgent(
  { database }: AdminContext,
  { principal_id: id, spiffe_id: spiffeId }: PrincipalRecord,
) {
  const found = spiffeId === null ? undefined : await spiffePrincipal(database, spiffeId)
  return found?.principal_id === id ? found : undefined
}

async function spiffeAgent(context: AdminContext, record: PrincipalRecord) {
  const known = await findSpiffeAgent(context, record)
  if (!known)
    throw conflict(
      'This agent is not identified by a SPIFFE id. Only agents that are enrolled with an SVID have trusted CAs.',
    )
  return known
}

/** Refuses with `body_unprocessable` each field that names no attached CA of the kind `spiffe`. */
async function checkAttached(
  { database }: AdminContext,
  named: Readonly<Record<string, string>>,
): Promise<void> {
  const attached = await listAttachedCas(database, 'spiffe')
  const problems = Object.entries(named)
    .filter(([, one]) => !attached.some((ca) => ca.digest === one))
    .map(([field]) => ({ field, message: 'is not an attached CA of the kind spiffe' }))
  if (problems.length > 0) throw unprocessableBody(problems)
}
