import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { without } from '../../../support/certs/openssl.ts'
import { exportOf, resealed } from '../../../support/db/resealed.ts'
import { CHAT, type Json, testGateway } from '../../../support/gateway.ts'
import {
  as,
  onTheMachine,
  operatorNamed,
  operatorOnTheMachine,
  ownerOnTheMachine,
} from '../../../support/operators.ts'
import { verbsInTurn } from '../../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const SCRIPT = join(import.meta.dirname, '../../../../docs/verify.py')
const TWO = { '70-operators.yaml': 'plugin: operators\ntwo_person: [grant, tools, operators]\n' }

/** What the page's own verifier says of an export. */
function byPython(file: string) {
  const { status, stdout, stderr } = spawnSync('python3', [SCRIPT, file, '--authority'], { encoding: 'utf8' })
  return { code: status, out: stdout, err: stderr }
}

/** The rows that a verifier names. */
const disagreeing = (out: string): readonly string[] =>
  [...out.matchAll(/^DISAGREES: (row \S+)/gm)].map(([, row = '']) => row)

await t.test(
  'docs/ledger.md#recomputing a ledger of operators, their refusals and proposals verifies, by both verifiers',
  { skip: without('python3') },
  async (t) => {
    const gateway = await testGateway(t, { files: TWO })
    const machine = onTheMachine(gateway)
    const alice = as(
      gateway,
      await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll', 'admin.grant']),
    )
    const bob = as(gateway, await ownerOnTheMachine(gateway, 'bob'))
    const carol = as(gateway, await operatorOnTheMachine(gateway, 'carol', ['admin.read', 'admin.operators']))
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    const chat = async () => (await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status
    const propose = async (capabilities: readonly string[]): Promise<string> =>
      (await alice('PATCH', path, { capabilities })).json.proposal_id
    const decide = async (who: typeof alice, id: string, verb: string) =>
      (await who('POST', `/v1/admin/proposals/${id}/${verb}`)).status

    t.equal(await chat(), 403)
    const first = await propose(['llm.chat'])
    t.equal(await chat(), 403, 'what is proposed opens nothing')
    t.equal(await decide(alice, first, 'confirm'), 403, 'own_proposal')
    t.equal(await decide(carol, first, 'confirm'), 403, 'capability_missing')
    t.equal(await decide(bob, first, 'confirm'), 200)
    t.equal(await chat(), 200)
    t.equal(await decide(bob, await propose([]), 'decline'), 204)
    t.equal(await decide(alice, await propose([]), 'decline'), 204)
    t.equal(await chat(), 200, 'what was declined takes nothing')
    const stale = await propose([])
    await machine('PATCH', path, { capabilities: ['llm.chat', 'x.y'] })
    t.equal(await decide(bob, stale, 'confirm'), 412)
    t.equal(await chat(), 200)
    t.equal(await decide(bob, await propose(['x.y']), 'confirm'), 200)
    t.equal(await chat(), 403)
    await propose(['llm.chat'])
    t.equal(await chat(), 403, 'one that stays open')
    // Refused at the gate, behind it, and of an operator that is out of service.
    t.equal((await carol('PATCH', path, { capabilities: [] })).status, 403)
    t.equal((await carol('POST', '/v1/admin/users', { user_name: 'eve', capabilities: ['x.y'] })).status, 403)
    const puppet = { operator_name: 'puppet', capabilities: ['admin.grant'] }
    t.equal((await carol('POST', '/v1/admin/operators', puppet)).status, 202)
    await machine('DELETE', '/v1/admin/operators/acme::operator::carol')
    t.equal((await carol('GET', '/v1/admin/agents')).status, 401)
    await machine('POST', '/v1/admin/operators/acme::operator::carol/reactivate')

    const exported = await bob('GET', '/v1/admin/audit/export')
    t.equal(exported.status, 200)
    await gateway.close(0)
    const file = join(t.testdir(), 'audit.ndjson')
    await sallyport(['export-audit', gateway.settings.databaseUrl, '--out', file])
    const text = readFileSync(file, 'utf8')
    // What was asked for by then; the gateway has ended since.
    t.ok(text.startsWith(exported.text.trimEnd()), 'the operator exports what the machine does')
    const rows: readonly Json[] = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    const seen = new Set(rows.map(({ action, status }) => `${action} ${status}`))
    for (const expected of [
      ...['proposal.created', 'proposal.confirmed', 'proposal.declined', 'proposal.void'].map(
        (action) => `${action} success`,
      ),
      ...['operator.created', 'operator.deactivated', 'operator.reactivated'].map(
        (action) => `${action} success`,
      ),
      ...['proposal.confirmed', 'agent.capabilities_patched', 'user.created'].map(
        (action) => `${action} denied`,
      ),
    ])
      t.ok(seen.has(expected), expected)

    const ours = await sallyport(['verify', file, '--authority'])
    t.equal(ours.code, 0, ours.out)
    t.match(ours.out, /recomputed [1-9]\d*, disagree 0, /)
    t.same(byPython(file), ours)
    const asked = await sallyport(['verify', '-', '--authority'], {}, exported.text)
    t.equal(asked.code, 0, asked.out)

    // What a second person has let through is authority as any other change is.
    const granted = rows.findIndex(({ detail }) => detail.proposal === first && detail.confirmed_by)
    t.equal(rows[granted].action, 'agent.capabilities_patched')
    for (const forged of [{ capabilities: [] }, { revision: 9 }]) {
      const row = structuredClone(rows[granted])
      Object.assign(row.detail, forged)
      writeFileSync(file, exportOf(resealed(rows.with(granted, row))))
      const [one, other] = [await sallyport(['verify', file, '--authority']), byPython(file)]
      t.same([one.code, other.code], [5, 5], JSON.stringify(forged))
      t.same(disagreeing(other.out), disagreeing(one.out))
    }
  },
)
