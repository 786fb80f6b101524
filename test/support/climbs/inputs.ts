import { createPrivateKey } from 'node:crypto'
import { certificateRequest } from '../../../scripts/client/renewal/certificate-request.ts'
import { proofSigner } from '../dpop.ts'
import { byCorporateCa, corporateCa } from '../foreign.ts'
import { legacyWith, tool } from '../mcp/stage.ts'
import { type ClimbStage, type Holder, type Noun, PLURALS, type Tried } from './stage.ts'

/** All that there is to climb by, and a request for a certificate. */
export type Climbing = Omit<ClimbStage, 'holderOf'> &
  Holder & { readonly request: { readonly csr: string; readonly key: string } }

const HIGH = ['llm.chat', 'mcp.tools.call', 'files.use']
let made = 0
const fresh = (): string => {
  made += 1
  return `n${made}`
}

/**
 * Makes the requests by which a holder would use an operation to become somebody else, or to reach more: each
 * a whole request. Null: nobody has written any yet for an operation of this name.
 */
export async function climbs(name: string, climbing: Climbing): Promise<readonly Tried[] | null> {
  const [, verb = name, noun] = /^([a-z]+)(Agent|User|Workload|Operator)(?=$|s$|[A-Z])/.exec(name) ?? []
  const rest = name.slice(verb.length + (noun?.length ?? 0))
  if (noun !== undefined && Object.hasOwn(OF_PRINCIPALS, `${verb}${rest}`))
    return (await OF_PRINCIPALS[`${verb}${rest}`]?.(climbing, noun as Noun)) ?? null
  return Object.hasOwn(OTHERS, name) ? ((await OTHERS[name]?.(climbing)) ?? null) : null
}

type Making<A extends readonly unknown[]> = (...args: A) => readonly Tried[] | Promise<readonly Tried[]>

/** Operations on principals of each kind, by their names without the kind. */
const OF_PRINCIPALS: Readonly<Record<string, Making<[climbing: Climbing, noun: Noun]>>> = {
  get: onVictim(),
  lists: () => [{}],
  deactivate: onVictim(),
  reactivate: onVictim(),
  erase: onVictim(),
  getUsage: onVictim(),
  setLabels: async ({ victim }, noun) => [
    { params: { id: await victim(noun) }, body: { labels: { team: fresh() } } },
  ],
  getCandidate: async ({ victim, machine }, noun) => {
    const id = await victim(noun)
    await machine('PUT', `/v1/admin/${PLURALS[noun][0]}/${id}/candidate`, { capabilities: [] })
    return [{ params: { id } }]
  },
  // Of one that it acts as already.
  setCapabilities: ({ own }, noun) => [{ params: { id: own[noun].id }, body: { capabilities: setOf(noun) } }],
  setCandidate: ({ own }, noun) => [{ params: { id: own[noun].id }, body: { capabilities: setOf(noun) } }],
  removeCandidate: async ({ victim, machine }, noun) => {
    const id = await victim(noun)
    await machine('PUT', `/v1/admin/${PLURALS[noun][0]}/${id}/candidate`, { capabilities: [] })
    return [{ params: { id } }]
  },
  promoteCandidate: async ({ own, machine, gateway }, noun) => {
    const { id } = own[noun]
    const path = `/v1/admin/${PLURALS[noun][0]}/${id}/candidate`
    await machine('PUT', path, { capabilities: setOf(noun) })
    const { etag } = (await gateway.admin('GET', path)).headers
    return [{ params: { id }, ...(typeof etag === 'string' && { headers: { 'if-match': etag } }) }]
  },
  setDpopKey: async ({ victim }, noun) => [{ params: { id: await victim(noun) }, body: proofSigner().jwk }],
  certify: async ({ victim, request }, noun) => [
    { params: { id: await victim(noun) }, body: { csr_pem: request.csr }, key: request.key },
  ],
  rotateCertificate: async ({ victim }, noun) => [{ params: { id: await victim(noun) }, body: {} }],
  invite: onVictim(),
  listCertificates: onVictim(),
  endCertificate: async ({ victim, machine }, noun) => {
    const id = await victim(noun)
    const path = `/v1/admin/${PLURALS[noun][0]}/${id}`
    await machine('POST', `${path}/rotate-cert`, {})
    const { cert_thumbprint: thumbprint } = (await machine('GET', path)).json
    return [{ params: { id, thumbprint } }]
  },
  listProofKeys: onVictim(),
  adoptDpopKey: async ({ victim }, noun) => [{ params: { id: await victim(noun), jkt: 'nobodys' } }],
  endDpopKey: async ({ victim, machine }, noun) => {
    const id = await victim(noun)
    const path = `/v1/admin/${PLURALS[noun][0]}/${id}`
    const { json } = await machine('POST', `${path}/dpop-jwk`, proofSigner().jwk)
    await machine('POST', `${path}/dpop-jwk`, proofSigner().jwk)
    return [{ params: { id, jkt: json.dpop_jkt } }]
  },
  create: (_climbing, noun) =>
    [setOf(noun), []].map((capabilities) => ({ body: { [PLURALS[noun][1]]: fresh(), capabilities } })),
  enrollByoca: ({ machine, pooled }) =>
    pooled('byoca', async () => {
      const name = fresh()
      const { caPem, certPem, keyPem } = await byCorporateCa(name)
      await machine('POST', '/v1/admin/ca/attach', { ca_pem: caPem, kind: 'organisation' })
      const body = { agent_name: name, cert_pem: certPem, private_key_pem: keyPem }
      return [{ body: { ...body, capabilities: HIGH } }, { body }]
    }),
  enrollSpiffe: async ({ evil, pay }) => {
    const enrolling = async (agent_name: string, id: string, more: object = {}): Promise<Tried> => {
      const { certPem, keyPem } = await evil.svid(id)
      return { body: { agent_name, svid_pem: certPem, svid_key_pem: keyPem, ...more } }
    }
    const name = pay.replace('acme::', '')
    // In the place of somebody who is there, by its name and by its id, and of somebody new.
    return [
      await enrolling(name, 'spiffe://spire.test/other', { trust_bundle_pem: evil.caPem }),
      await enrolling(fresh(), `spiffe://spire.test/${name.replace('pay-', '')}`),
      await enrolling(fresh(), 'spiffe://spire.test/new', { capabilities: HIGH }),
      await enrolling(fresh(), `spiffe://spire.test/${fresh()}`),
    ]
  },
  putCertificate: ({ machine, pooled }) =>
    pooled('leaf', async () => {
      const name = fresh()
      const corporate = await corporateCa()
      const [old, next] = [await corporate.leaf(name), await corporate.leaf(name)]
      await machine('POST', '/v1/admin/ca/attach', { ca_pem: corporate.caPem, kind: 'organisation' })
      await machine('POST', '/v1/admin/agents/enroll/byoca', {
        ...{ agent_name: name, capabilities: HIGH, cert_pem: old.certPem, private_key_pem: old.keyPem },
      })
      const csr_pem = certificateRequest(createPrivateKey(next.keyPem))
      return [{ params: { id: `acme::${name}` }, body: { cert_pem: next.certPem, csr_pem } }]
    }),
  listTrustedCas: ({ pay }) => [{ params: { id: pay } }],
}

/** All others, by their names. */
const OTHERS: Readonly<Record<string, Making<[climbing: Climbing]>>> = {
  replaceTrustBundle: ({ pay, evil }) => [
    { params: { id: pay }, body: { trust_bundle_pem: evil.caPem, grace_hours: 0 } },
  ],
  endPreviousBundles: ({ pay }) => [{ params: { id: pay } }],
  trustCaForAgent: ({ pay, evilDigest }) => [{ params: { id: pay }, body: { digest: evilDigest } }],
  distrustCaForAgent: ({ pay, honestDigest }) => [{ params: { id: pay, digest: honestDigest } }],
  trustCaAs: async ({ evilDigest, honestDigest, pay, machine }) => {
    await machine('DELETE', `/v1/admin/agents/${pay}/trusted-cas/${evilDigest}`)
    return [{ body: { digest: evilDigest, as: honestDigest } }]
  },
  listCapabilities: () => [{}],
  changeCapabilitiesOfAgents: ofFound('Agent'),
  changeCapabilitiesOfUsers: ofFound('User'),
  changeCapabilitiesOfWorkloads: ofFound('Workload'),
  whatIfAgent: whatIfOf('Agent'),
  whatIfUser: whatIfOf('User'),
  whatIfWorkload: whatIfOf('Workload'),
  listCapabilitySets: () => [{}],
  getCapabilitySet: namedSet,
  putCapabilitySet: () => [{ params: { name: fresh() }, body: { capabilities: HIGH } }],
  deleteCapabilitySet: namedSet,
  listLabels: () => [{}],
  listCosts: () => [{}],
  findPrices: () => [{ query: '?model=gpt-test' }],
  listUserGrants: async ({ victim }) => [{ params: { id: await victim('User') } }],
  endGrant: () => [{ params: { id: `grt_${'0'.repeat(26)}` } }],
  endGrants: () => [{ body: { all: true } }],
  listUpstreamAccounts: async ({ victim }) => [{ query: `?principal=${await victim('User')}` }],
  endUpstreamAccount: () => [{ params: { id: `ua_${'0'.repeat(26)}` } }],
  listExports: () => [{}],
  rewindExport: () => [{ params: { sink: 'mine' }, body: { stream: 'main', seq: 1 } }],
  listStops: () => [{}],
  beginStop: () => [{ body: { scope: { kind: 'workloads' }, reason: 'mine' } }],
  endStop: async ({ machine }) => {
    const { json } = await machine('POST', '/v1/admin/stops', {
      scope: { kind: 'workloads' },
      reason: 'mine',
    })
    return [{ params: { id: json.stop_id }, body: { reason: 'mine' } }]
  },
  listLimits: () => [{}],
  getLimit: ofLimit(),
  createLimit: () => [{ body: { ...ofNobody, name: limitName() } }],
  changeLimit: ofLimit({ amount: 1_000 }),
  overrideLimit: ofLimit({ amount: 1_000, until: '2999-01-01T00:00:00.000Z', reason: 'mine' }),
  endLimitOverride: async (climbing) => {
    const [tried] = await ofLimit()(climbing)
    const body = { amount: 1_000, until: '2999-01-01T00:00:00.000Z', reason: 'mine' }
    await climbing.machine('POST', `/v1/admin/limits/${tried?.params?.id}/override`, body)
    return tried ? [tried] : []
  },
  removeLimit: ofLimit(),
  showLimitUsage: ofLimit(),
  listProviders: () => [{}],
  tryProvider: () => [{ params: { name: 'openai' } }],
  getCaRotation: () => [{}],
  // The root stays: the stage knows no other one.
  prepareCa: () => [{ body: { scope: 'intermediate' } }],
  issueByNextCa: () => [{}],
  finishCaRotation: () => [{}, { query: '?force=true&reason=mine' }],
  cancelCaRotation: () => [{}, { query: '?force=true&reason=mine' }],
  createMcpResource: ({ server }) => [
    {
      body: {
        name: fresh(),
        endpoint_url: server.url,
        auth_type: 'bearer',
        auth_secret_ref: 'env:MCP_SECRET_FILES',
      },
    },
  ],
  listMcpResources: () => [{}],
  getMcpResource: ({ files }) => [{ params: { resource_id: files.resource_id } }],
  updateMcpResource: ({ files, server }) => [
    { params: { resource_id: files.resource_id }, body: { required_capability: 'llm.chat' } },
    { params: { resource_id: files.resource_id }, body: { endpoint_url: server.url } },
  ],
  deleteMcpResource: async (climbing) => [{ params: { resource_id: await registered(climbing) } }],
  refreshMcpResource: ({ files }) => [{ params: { resource_id: files.resource_id } }],
  approveMcpTool: async (climbing) => {
    const { id, digest } = await waiting(climbing)
    return [{ params: { resource_id: id, tool: 'evil' }, body: { digest } }]
  },
  rejectMcpTool: async (climbing) => {
    const { id, digest } = await waiting(climbing)
    return [{ params: { resource_id: id, tool: 'evil' }, body: { digest } }]
  },
  approveMcpServer: ({ files }) => [
    { params: { resource_id: files.resource_id }, body: { digest: '0'.repeat(64) } },
  ],
  createMcpBinding: ({ own, files }) => [
    { body: { agent_id: own.Agent.id, resource_id: files.resource_id } },
  ],
  listMcpBindings: () => [{}],
  getMcpBinding: async (climbing) => [{ params: { binding_id: await bound(climbing) } }],
  deleteMcpBinding: async (climbing) => [{ params: { binding_id: await bound(climbing) } }],
  attachCas: ({ unattached }) => [{ body: { ca_pem: unattached.caPem, kind: 'spiffe' } }],
  listCas: () => [{}],
  detachCa: ({ evilDigest }) => [{ params: { digest: evilDigest }, query: '?lock_out=true' }],
  rotateSigningKey: () => [{}],
  rotateAuditKey: () => [{}],
  getOrganisation: () => [{}],
  setOrganisation: ({ unattached }) => [
    { body: { attach: { ca_pem: unattached.caPem, kind: 'spiffe' } } },
    { body: {} },
  ],
  getSecret: () => [{}],
  rotateSecret: () => [{ body: { new_secret: `mallory-chose-${fresh()}` } }],
  disableSecret: () => [{}],
  enableSecret: () => [{}],
  rehearse: ({ own }) => [{ body: { changes: [{ principal: own.Agent.id, capabilities: HIGH }] } }],
  getRehearsal: ({ machine, own, pooled }) =>
    pooled('rehearsal', async () => {
      const changes = [{ principal: own.Agent.id, capabilities: HIGH }]
      const { json } = await machine('POST', '/v1/admin/rehearsals', { changes })
      return [{ params: { id: json.id } }]
    }),
  getSession: () => [{}],
  listSessions: () => [{}],
  endSession: () => [{ params: { id: '0'.repeat(16) } }],
  listAudit: () => [{}],
  getAuditHead: () => [{}],
  getAuditLog: () => [{}],
  getArchive: () => [{}],
  runArchive: () => [{ body: {} }],
  confirmSegment: () => [{ params: { file: '0-255.zip' }, body: { sha256: 'c0'.repeat(32) } }],
  forgetSegment: () => [{ params: { file: '0-255.zip' }, body: { reason: 'its time is over' } }],
  restoreSegment: () => [{ params: { file: '0-255.zip' } }],
  exportAudit: () => [{}],
  packEvidence: () => [{ query: SINCE }],
  reviewAudit: async ({ machine }) => {
    const { size: checkpoint } = (await machine('GET', '/v1/admin/log')).json.log
    return [{ body: { since: DAY, until: NEXT, checkpoint } }]
  },
  verifyAudit: () => [{}],
  listApprovals: () => [{}],
  getApproval: () => [{ params: { id: 'apr_0' } }],
  approveCall: () => [{ params: { id: 'apr_0' }, body: {} }],
  declineCall: () => [{ params: { id: 'apr_0' }, body: {} }],
  listProposals: () => [{}],
  getProposal: () => [{ params: { id: 'prop_0' } }],
  confirmProposal: () => [{ params: { id: 'prop_0' } }],
  declineProposal: () => [{ params: { id: 'prop_0' } }],
}

const DAY = '2026-01-01T00:00:00.000Z'
const NEXT = '2026-01-02T00:00:00.000Z'
const SINCE = `?since=${DAY}&until=${NEXT}`

const setOf = (noun: Noun): readonly string[] =>
  noun === 'Operator' ? ['admin.read', 'admin.operators'] : HIGH

function onVictim(): Making<[climbing: Climbing, noun: Noun]> {
  return async ({ victim }, noun) => [{ params: { id: await victim(noun) } }]
}

/** A change of the sets of one that it acts as already, as a dry run has shown it. */
function ofFound(noun: Noun): Making<[climbing: Climbing]> {
  return async ({ own, machine }) => {
    const body = { q: own[noun].id, add: HIGH }
    const { json } = await machine('POST', `/v1/admin/${PLURALS[noun][0]}/capabilities?dry_run=true`, body)
    return [{ body: { ...body, etags: json.etags } }]
  }
}

function whatIfOf(noun: Noun): Making<[climbing: Climbing]> {
  return async ({ victim }) => [{ params: { id: await victim(noun) }, query: '?model=gpt-test' }]
}

/** A limit of nobody's calls: those of the stage go on. */
const ofNobody = { measure: 'calls', per: 'day', amount: 1, for: { principals: ['nobody::*'] } }
const limitName = () =>
  fresh()
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]/g, '-')

function ofLimit(body?: object): Making<[climbing: Climbing]> {
  return async ({ machine }) => {
    const { json } = await machine('POST', '/v1/admin/limits', { ...ofNobody, name: limitName() })
    return [{ params: { id: json.limit_id }, ...(body && { body }) }]
  }
}

function namedSet({ machine, pooled }: Climbing): Promise<readonly Tried[]> {
  return pooled('set', async () => {
    const name = fresh()
    await machine('PUT', `/v1/admin/sets/${name}`, { capabilities: HIGH })
    return [{ params: { name } }]
  })
}

const registered = ({ machine, server, pooled }: Climbing): Promise<string> =>
  pooled('resource', async () => {
    const body = { name: fresh(), endpoint_url: server.url }
    return (await machine('POST', '/v1/admin/mcp-resources', body)).json.resource_id
  })

/** A tool that waits for approval. */
const waiting = (climbing: Climbing): Promise<{ readonly id: string; readonly digest: string }> =>
  climbing.pooled('waiting', async () => {
    const { machine, server } = climbing
    const id = await registered(climbing)
    server.act = legacyWith([tool('evil', { description: fresh() })])
    const { json } = await machine('POST', `/v1/admin/mcp-resources/${id}/refresh`)
    return { id, digest: json.tools[0].pending_digest }
  })

const bound = ({ machine, victim, files, pooled }: Climbing): Promise<string> =>
  pooled('binding', async () => {
    const body = { agent_id: await victim('Agent'), resource_id: files.resource_id }
    return (await machine('POST', '/v1/admin/mcp-resources/bindings', body)).json.binding_id
  })
