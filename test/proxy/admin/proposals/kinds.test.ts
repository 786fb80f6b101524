import t from 'tap'
import { TWO_PERSON_KINDS } from '../../../../plugins/operators/capabilities.ts'
import { OPERATIONS } from '../../../../proxy/admin/http/operations.ts'
import { trustDomain } from '../../../support/foreign.ts'
import { testGateway } from '../../../support/gateway.ts'
import { as, ownerOnTheMachine } from '../../../support/operators.ts'

/**
 * Reasons why two people are never asked, with the capability that such an operation demands: each is a
 * sentence of docs/operators.md#two-people.
 */
const OF_NO_KIND: Readonly<Record<string, RegExp>> = {
  'it gives nobody more than the holder of admin.enroll can take': /^admin\.enroll$/,
  'it decides a call of somebody else, who is the other person': /^admin\.approve$/,
  'it has rows sent again, and says so in a row': /^admin\.audit$/,
  'it ends a session, or is about a proposal': /^admin\.read$/,
}

await t.test(
  'H7 every operation that changes something is of a kind that two people can be asked for',
  (t) => {
    const kinds: ReadonlySet<string> = new Set(TWO_PERSON_KINDS)
    const trust: string[] = []
    for (const operation of Object.values(OPERATIONS).flatMap((kind) => Object.values(kind))) {
      const { name, demands, action } = operation
      const also = 'twoPersonKind' in operation ? operation.twoPersonKind : undefined
      if (also === 'trust') trust.push(name)
      if (action === 'admin.read' || 'harmless' in operation) continue
      const isOfKind = kinds.has(demands.replace('admin.', '')) || also !== undefined
      t.ok(isOfKind || Object.values(OF_NO_KIND).some((exempt) => exempt.test(demands)), name)
    }
    t.strictSame(trust.toSorted(), [
      'attachCas',
      'cancelCaRotation',
      'detachCa',
      'distrustCaForAgent',
      'endPreviousBundles',
      'finishCaRotation',
      'issueByNextCa',
      'prepareCa',
      'replaceTrustBundle',
      'setOrganisation',
      'trustCaAs',
      'trustCaForAgent',
    ])
    t.end()
  },
)

await t.test(
  'H7 two_person: [settings] asks for CAs, names, the shared secret and keys that sign',
  async (t) => {
    const gateway = await testGateway(t, {
      files: { '70-operators.yaml': 'plugin: operators\ntwo_person: [settings]\n' },
    })
    const [alice, bob] = [
      as(gateway, await ownerOnTheMachine(gateway, 'alice')),
      as(gateway, await ownerOnTheMachine(gateway, 'bob')),
    ]
    const { caPem } = await trustDomain()
    for (const [method, path, body] of [
      ['POST', '/v1/admin/ca/attach', { ca_pem: caPem, kind: 'spiffe' }],
      ['DELETE', `/v1/admin/ca/${'0'.repeat(64)}`],
      ['PUT', '/v1/admin/ca/organisation', {}],
      ['POST', '/v1/admin/secret/disable'],
    ] as const)
      t.equal((await alice(method, path, body)).status, 202, path)
    for (const [path, body] of [
      ['/v1/admin/signing-key/rotate'],
      ['/v1/admin/audit-key/rotate'],
      ['/v1/admin/secret/rotate', { new_secret: 'mallory-chose-this-one' }],
    ] as const)
      t.match(await alice('POST', path, body), { status: 409, json: { reason: 'two_people_required' } }, path)
    t.equal(
      (await alice('POST', '/v1/admin/operators', { operator_name: 'carol' })).status,
      201,
      'not operators',
    )
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const path = `/v1/admin/agents/${bot.id}/trusted-cas`
    t.equal(
      (await alice('POST', path, { digest: '0'.repeat(64) })).status,
      409,
      'nor trust: it is refused as itself',
    )
    const { proposals } = (await bob('GET', '/v1/admin/proposals?status=open')).json
    t.equal(proposals.length, 4)
    const disabling = proposals.find(({ action }: { action: string }) => action === 'admin.secret_disabled')
    t.equal((await bob('POST', `/v1/admin/proposals/${disabling.id}/confirm`)).status, 200)
    t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 403, 'the secret is out of service')
  },
)
