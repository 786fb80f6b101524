import crypto, { generateKeyPairSync, X509Certificate } from 'node:crypto'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { Agent } from 'node:https'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { seal, unseal } from '../../../../certs/authority/key-store.ts'
import { digestsOf, type StoredAuthority, swapRotation } from '../../../../certs/authority/rotation.ts'
import { openDatabase } from '../../../../db/engine.ts'
import { readSetting, type SettingKey } from '../../../../db/settings.ts'
import { controlPath } from '../../../../proxy/http/control-socket.ts'
import { certificateRequest } from '../../../../scripts/client/renewal/certificate-request.ts'
import { overSocket } from '../../../support/control.ts'
import { ENGINE } from '../../../support/db/engine.ts'
import { twoStages } from '../../../support/db/postgres/stages.ts'
import { past } from '../../../support/db/raw.ts'
import { corporateCa } from '../../../support/foreign.ts'
import {
  ADMIN_SECRET,
  agentOf,
  ask,
  CHAT,
  type Identity,
  scratch,
  type TestGateway,
  testGateway,
} from '../../../support/gateway.ts'
import { killingAt } from '../../../support/killed-at.ts'
import { signedInBySecret } from '../../../support/oidc/jar.ts'
import { as, onTheMachine, operatorNamed, ownerOnTheMachine } from '../../../support/operators.ts'
import { environment, startProcess } from '../../../support/process.ts'
import { eventually } from '../../../support/settled.ts'
import { sweepPlaces, WHOLE_SWEEP } from '../../../support/sweep-places.ts'

const PATH = '/v1/admin/ca/rotation'

const stepOf = (gateway: TestGateway) => (name: string, headers?: Record<string, string>) =>
  gateway.admin('POST', `${PATH}/${name}`, name === 'prepare' ? {} : undefined, headers)

const certificatesIn = (pem: string): readonly X509Certificate[] =>
  (pem.match(/-----BEGIN[\s\S]+?-----END CERTIFICATE-----\n?/g) ?? []).map((one) => new X509Certificate(one))

/** A call on a connection of its own: its status, or the code of the TLS fault. */
async function chat({ url, ca }: Pick<TestGateway, 'url' | 'ca'>, who: Identity): Promise<number | string> {
  const agent = agentOf(ca, who)
  try {
    const { status } = await ask(`${url}/v1/chat/completions`, 'POST', { agent, body: CHAT })
    return status
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error)
  } finally {
    agent.destroy()
  }
}

async function renewed(gateway: TestGateway, who: Identity, ca = gateway.ca): Promise<Identity> {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
  const agent = agentOf(ca, who)
  const { status, json, text } = await ask(`${gateway.url}/v1/auth/certificate`, 'POST', {
    agent,
    body: { csr_pem: certificateRequest(key) },
  })
  agent.destroy()
  if (status !== 200) throw new Error(`${status} ${text}`)
  return { ...who, cert: json.cert_chain_pem, key: String(key.export({ type: 'pkcs8', format: 'pem' })) }
}

const bundleOf = async ({ url }: TestGateway, path = '/pki/ca.crt'): Promise<string> =>
  (await ask(url + path, 'GET', { agent: new Agent({ rejectUnauthorized: false }) })).text

/** The issuer's key, as a certificate names it. */
const issuedBy = ({ cert }: Identity, pem: string): boolean => {
  const [leaf] = certificatesIn(cert)
  return certificatesIn(pem).some((ca) => leaf?.checkIssued(ca) && leaf.verify(ca.publicKey))
}

t.test('a CA is replaced in three phases, each of which can be seen', async (t) => {
  const gateway = await testGateway(t)
  const step = stepOf(gateway)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const before = await gateway.admin('GET', PATH)
  t.match(before, { status: 200, json: { phase: 'none', other: null, holders: null, finished: [] } })
  const old = before.json.issuing

  await t.test('before one is prepared nothing can be issued, finished or cancelled', async (t) => {
    for (const name of ['issue', 'finish', 'cancel'])
      t.match(await step(name), { status: 409, json: { reason: 'conflict' } }, name)
  })

  const prepared = await step('prepare')
  t.match(prepared, {
    status: 200,
    json: {
      phase: 'prepared',
      scope: 'root',
      issuing: old,
      holders: { active: 1, in_grace: 0, inactive: 0, principals: [{ principal_id: 'acme::bot' }] },
    },
  })
  t.not(prepared.json.other.root_sha256, old.root_sha256)
  t.equal((await step('prepare')).status, 409, 'once')
  const both = await bundleOf(gateway)
  t.equal(certificatesIn(both).length, 2, 'both are exported')
  t.equal(await readFile(join(gateway.settings.dataDir, 'org-ca.crt'), 'utf8'), both)
  const young = await gateway.enroll('young', ['llm.chat'])
  const chain = await bundleOf(gateway, '/pki/ca-chain.pem')
  t.ok(issuedBy(young, chain.slice(0, chain.indexOf('-----END'.padEnd(8)) + 26)), 'by the old one still')
  t.match(await renewed(gateway, bot).catch(String), /409/, 'nobody is asked to renew yet')

  t.equal((await step('issue', { 'if-match': String(before.headers.etag) })).status, 412, 'a stale ETag')
  const issuing = await step('issue', { 'if-match': String(prepared.headers.etag) })
  t.match(issuing, { status: 200, json: { phase: 'issuing', other: old, holders: { active: 2 } } })
  t.equal((await step('issue')).status, 409)
  t.equal(await chat(gateway, bot), 200, 'who trusts the old root alone, and holds an old certificate')
  t.equal(await chat({ ...gateway, ca: both }, bot), 200)
  const fresh = await gateway.enroll('fresh', ['llm.chat'])
  t.notOk(issuedBy(fresh, await readFile(join(gateway.settings.dataDir, 'org-ca.crt'), 'utf8')))
  t.equal(await chat({ ...gateway, ca: both }, fresh), 200)
  const rows = await gateway.rows({ order: 'desc', limit: 50 })
  t.ok(rows.some(({ action }) => action === 'ca.rotation_issued'))

  await t.test('it is not finished while an active principal holds an old certificate', async (t) => {
    t.match(await step('finish'), {
      status: 409,
      json: { reason: 'ca_relied_on', principals: ['acme::bot', 'acme::young'], principals_total: 2 },
    })
    t.match(await step('finish?dry_run=true'), {
      status: 200,
      json: { phase: 'issuing', rehearsal: { totals: { newly_refused: 2 } } },
    })
    t.equal(await chat(gateway, bot), 200)
  })

  const moved = await renewed(gateway, bot)
  t.equal(await chat(gateway, bot), 200, 'the certificate before, in its grace')
  t.match(await gateway.admin('GET', PATH), {
    json: { holders: { active: 1, in_grace: 1, principals: [{ principal_id: 'acme::young' }] } },
  })
  t.match(
    (await gateway.admin('GET', '/v1/admin/agents?q=ca:old')).json.map((one: { name: string }) => one.name),
    ['young'],
  )
  t.equal((await gateway.admin('DELETE', '/v1/admin/agents/acme::young')).status, 204)

  const held = agentOf(gateway.ca, bot, true)
  const held401 = () => ask(`${gateway.url}/v1/models`, 'GET', { agent: held })
  t.equal((await held401()).status, 200)
  const finished = await step('finish')
  t.match(finished, {
    status: 200,
    json: { phase: 'none', other: null, holders: null, finished: [{ root_sha256: old.root_sha256 }] },
  })
  t.equal((await held401()).status, 401, 'on a connection that was open')
  held.destroy()
  const ca = await bundleOf(gateway)
  t.equal(certificatesIn(ca).length, 1)
  t.equal(await chat({ ...gateway, ca }, bot), 401)
  t.equal(await chat({ ...gateway, ca }, moved), 200)
  t.not(await chat(gateway, moved), 200, 'the old root vouches for nothing')
  const reactivated = await ask(`${gateway.url}/v1/admin/agents/acme::young/reactivate`, 'POST', {
    agent: agentOf(ca, null),
    headers: { 'x-admin-secret': 'correct-horse-battery' },
  })
  t.equal(reactivated.status, 200)
  t.equal(await chat({ ...gateway, ca }, young), 401, 'nor does it of who was inactive meanwhile')
})

/** A gateway whose admin door is asked with whatever CA it has now. */
async function scene(t: Test) {
  const gateway = await testGateway(t)
  const insecure = new Agent({ rejectUnauthorized: false, keepAlive: true })
  t.teardown(() => insecure.destroy())
  const admin = (method: string, path: string, body?: unknown) =>
    ask(gateway.url + path, method, {
      agent: insecure,
      body,
      headers: { 'x-admin-secret': 'correct-horse-battery' },
    })
  return {
    gateway,
    admin,
    step: (name: string) => admin('POST', `${PATH}/${name}`, name.startsWith('prepare') ? {} : undefined),
  }
}

t.test('each phase can be taken back', async (t) => {
  const { gateway, admin, step } = await scene(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const old = (await admin('GET', PATH)).json.issuing
  await step('prepare')
  t.match(await step('cancel'), { status: 200, json: { phase: 'none', issuing: old, other: null } })
  await step('prepare')
  await step('issue')
  const moved = await renewed(gateway, bot, await bundleOf(gateway))
  t.match(await step('cancel'), { status: 200, json: { phase: 'prepared', issuing: old } })
  const ca = await bundleOf(gateway)
  t.equal(await chat({ ...gateway, ca }, moved), 200, 'a certificate of the next one still counts')
  t.match(await step('cancel'), { status: 409, json: { reason: 'ca_relied_on', principals: ['acme::bot'] } })
  const back = await renewed(gateway, moved, ca)
  t.equal(await chat({ ...gateway, ca }, back), 200)
  t.match(await step('cancel'), { status: 200, json: { phase: 'none', issuing: old } })
  t.equal(await chat(gateway, moved), 401)
  t.equal(await chat(gateway, back), 200)
})

t.test(
  'what agents have brought is told from what was issued here by rows, however long it lives',
  async (t) => {
    const { gateway, admin, step } = await scene(t)
    const corporate = await corporateCa()
    await admin('POST', '/v1/admin/ca/attach', { ca_pem: corporate.caPem, kind: 'organisation' })
    const enroll = async (agent_name: string): Promise<Identity> => {
      const { certPem, keyPem } = await corporate.leaf(agent_name, undefined, 90)
      const body = { agent_name, cert_pem: certPem, private_key_pem: keyPem, capabilities: ['llm.chat'] }
      t.equal((await admin('POST', '/v1/admin/agents/enroll/byoca', body)).status, 201)
      return { id: `acme::${agent_name}`, cert: certPem, key: keyPem }
    }
    const brought = await enroll('brought')
    await enroll('rotated')
    const { status } = await admin('POST', '/v1/admin/agents/acme::rotated/rotate-cert', { grace_hours: 0 })
    t.equal(status, 200)
    const { databaseUrl } = gateway.settings
    // As before issuers were kept, and by a CA of ours that cut its life short.
    await past(databaseUrl, 'update certificate_pins set issuer = null')
    await past(
      databaseUrl,
      `update certificate_pins set not_after = '2030-01-01T00:00:00.000Z' where principal_id = 'acme::rotated'`,
    )
    await step('prepare')
    await step('issue')
    t.match(await step('finish'), {
      status: 409,
      json: { principals: ['acme::rotated'], principals_total: 1 },
    })
    t.equal((await step('finish?force=true&reason=stolen')).status, 200)
    t.equal(await chat({ ...gateway, ca: await bundleOf(gateway) }, brought), 200)
  },
)

t.test('a process that has not heard of a step certifies by the CA that issues now', async (t) => {
  const { gateway, step } = await scene(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await step('prepare')
  const ca = await bundleOf(gateway)
  const database = await openDatabase(gateway.settings.databaseUrl)
  t.teardown(() => database.close())
  const prepared: StoredAuthority = JSON.parse((await readSetting(database, 'authority')) ?? '')
  const issuing = swapRotation(prepared, Date.now())
  // As another process stores a step.
  const stored = async (next: StoredAuthority): Promise<void> => {
    const put = (key: SettingKey, value: string) =>
      past(gateway.settings.databaseUrl, `update settings set value = '${value}' where key = '${key}'`)
    await put('authority', JSON.stringify(next))
    await put('issuing_ca', digestsOf(next).intermediate_sha256)
  }
  await stored(issuing)
  const moved = await renewed(gateway, bot, ca)
  t.ok(issuedBy(moved, issuing['intermediate.crt']), 'to be renewed at once')
  t.equal(await chat({ ...gateway, ca }, moved), 200)
  await stored(swapRotation(issuing, Date.now()))
  const { status, text } = await ask(`${gateway.url}/v1/admin/agents`, 'POST', {
    agent: agentOf(ca, null),
    headers: { 'x-admin-secret': 'correct-horse-battery' },
    body: { agent_name: 'young', capabilities: [] },
  })
  t.equal(status, 201)
  t.ok(issuedBy({ ...bot, cert: JSON.parse(text).cert_chain_pem }, prepared['intermediate.crt']))
})

t.test('an intermediate is replaced under its root: clients need no other one', async (t) => {
  const { gateway, admin, step } = await scene(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const old = (await admin('GET', PATH)).json.issuing
  const prepared = await admin('POST', `${PATH}/prepare`, { scope: 'intermediate' })
  t.match(prepared.json, { scope: 'intermediate', other: { root_sha256: old.root_sha256 } })
  t.equal(certificatesIn(await bundleOf(gateway)).length, 1)
  await step('issue')
  const moved = await renewed(gateway, bot)
  t.equal((await step('finish')).status, 200)
  t.equal(await chat(gateway, moved), 200)
  t.equal(await chat(gateway, bot), 401)
})

t.test('a finish by force ends whoever holds an old certificate, and says why', async (t) => {
  const { gateway, step } = await scene(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await step('prepare')
  await step('issue')
  t.equal((await step('finish?force=true')).status, 422, 'not without a reason')
  t.equal((await step('finish?force=true&reason=The+key+was+stolen')).status, 200)
  t.equal(await chat({ ...gateway, ca: await bundleOf(gateway) }, bot), 401)
  const [row] = await gateway.rows({ action: 'ca.rotation_finished' })
  t.match(row?.detail, { ended: 1, locked_out: 1, force_reason: 'The key was stolen' })
  const [state] = await gateway.rows({ action: 'agent.certificate_ended' })
  t.match(state?.detail, { subject: 'acme::bot', thumbprints: [] })
})

t.test('an operator is locked out by an owner alone, and the last owner by nobody', async (t) => {
  const gateway = await testGateway(t)
  const owner = await operatorNamed(gateway, 'owner', ['admin.read', 'admin.settings', 'admin.operators'])
  const setter = await operatorNamed(gateway, 'setter', ['admin.read', 'admin.settings'])
  const viewer = await operatorNamed(gateway, 'viewer', ['admin.read'])
  await gateway.enroll('bot', ['llm.chat'])
  await stepOf(gateway)('prepare')
  await stepOf(gateway)('issue')
  const end = (who: Identity) =>
    as(gateway, who)('POST', `${PATH}/finish?force=true&reason=The+key+was+stolen`)
  t.match(await end(setter), {
    status: 403,
    json: { reason: 'capability_missing', required_capability: 'admin.operators' },
  })
  t.equal((await as(gateway, owner)('POST', '/v1/admin/secret/disable')).status, 204)
  t.match(await end(owner), { status: 409, json: { reason: 'last_owner' } })
  t.equal((await as(gateway, viewer)('GET', PATH)).status, 200, 'nothing has changed')
  const moved = await renewed(gateway, owner)
  t.equal((await end(moved)).status, 200)
  const now = { ...gateway, ca: await bundleOf(gateway) }
  const statusOf = async (who: Identity) =>
    (await ask(`${gateway.url}${PATH}`, 'GET', { agent: agentOf(now.ca, who) })).status
  t.same([await statusOf(moved), await statusOf(owner), await statusOf(viewer)], [200, 401, 401])
})

t.test('of two operators at once one takes the step', async (t) => {
  const { step } = await scene(t)
  for (const name of ['prepare', 'issue', 'finish']) {
    const all = await Promise.all([step(name), step(name), step(name)])
    const statuses = all.map(({ status }) => status).toSorted((a, b) => a - b)
    t.equal(statuses[0], 200, `${name}: ${statuses.join()}`)
    t.ok(
      statuses.slice(1).every((status) => status === 409 || status === 412),
      `${name}: ${statuses.join()}`,
    )
  }
})

t.test('a gateway that starts again goes on where it was', async (t) => {
  const first = await testGateway(t)
  const step = stepOf(first)
  const bot = await first.enroll('bot', ['llm.chat'])
  await step('prepare')
  await step('issue')
  await first.close()
  const second = await testGateway(t, {
    settings: {
      MCP_PROXY_DATA_DIR: first.settings.dataDir,
      MCP_PROXY_DATABASE_URL: first.settings.databaseUrl,
    },
  })
  t.match(await second.admin('GET', PATH), { json: { phase: 'issuing', holders: { active: 1 } } })
  t.equal(await chat(first, bot).catch(String), 'ECONNREFUSED')
  t.equal(await chat({ ...second, ca: first.ca }, bot), 200)
})

t.test('the page and its buttons take the steps, and say who still holds an old certificate', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', ['llm.chat'])
  const jar = await signedInBySecret(gateway)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const text = async (path = '/proxy/pki') => (await jar.ask('GET', path)).text
  const press = async (step: string, fields: Readonly<Record<string, string>> = {}) => {
    const etag = /name="if_match" value="([^"]+)"/.exec(await text())?.[1]?.replaceAll('&quot;', '"') ?? ''
    return jar.send(`/proxy/pki/rotation/${step}`, { csrf, if_match: etag, ...fields })
  }
  t.notMatch(await text('/proxy'), 'CA is being replaced')
  t.equal(
    (await press('prepare', { scope: 'intermediate' })).headers.location,
    '/proxy/pki?notice=ca_prepared',
  )
  t.match(await text(), /<strong>1<\/strong> active[\s\S]*acme::bot/)
  t.match(await text('/proxy'), 'CA is being replaced')
  t.equal((await press('issue', { if_match: '"0"' })).status, 412, 'a page of before')
  t.equal((await press('issue')).headers.location, '/proxy/pki?notice=ca_issued')
  t.equal((await press('finish')).status, 409)
  t.equal((await press('cancel')).headers.location, '/proxy/pki?notice=ca_cancelled')
  t.equal((await press('issue')).headers.location, '/proxy/pki?notice=ca_issued')
  t.equal(
    (await press('finish', { force_reason: 'stolen' })).headers.location,
    '/proxy/pki?notice=ca_finished',
  )
  t.match(await text(), 'Replace the CA')
})

t.test('a CA that was issued by and taken back is dropped on the page, with a reason', async (t) => {
  const { gateway, step } = await scene(t)
  await step('prepare')
  await step('issue')
  const ca = await bundleOf(gateway)
  const asked = { agent: agentOf(ca, null), headers: { 'x-admin-secret': ADMIN_SECRET } }
  const body = { agent_name: 'young', capabilities: [] }
  t.equal((await ask(`${gateway.url}/v1/admin/agents`, 'POST', { ...asked, body })).status, 201)
  t.equal((await step('cancel')).json.phase, 'prepared')
  const jar = await signedInBySecret(gateway)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  t.match((await jar.ask('GET', '/proxy/pki')).text, 'Reason, if somebody has a certificate of the next CA')
  const path = '/proxy/pki/rotation/cancel'
  const refused = await jar.send(path, { csrf, force_reason: '' })
  t.match(refused, { status: 409, text: /Active principals still hold certificates/ })
  const forced = await jar.send(path, { csrf, force_reason: 'lost' })
  t.equal(forced.headers.location, '/proxy/pki?notice=ca_cancelled', forced.text)
  const [row] = await gateway.rows({ action: 'ca.rotation_cancelled' })
  t.match(row?.detail, { force_reason: 'lost', locked_out: 1 })
})

t.test('each step asks for two people where trust does', async (t) => {
  const gateway = await testGateway(t, {
    files: { '70-operators.yaml': 'plugin: operators\ntwo_person: [trust]\n' },
  })
  const owners = [await ownerOnTheMachine(gateway, 'alice'), await ownerOnTheMachine(gateway, 'bob')]
  for (const [name, phase] of [
    ['prepare', 'prepared'],
    ['issue', 'issuing'],
    ['cancel', 'prepared'],
    ['cancel', 'none'],
    ['prepare', 'prepared'],
    ['issue', 'issuing'],
    ['finish?force=true&reason=stolen', 'none'],
  ] as const) {
    // Each step may make its listener show another certificate.
    const [alice, bob] = owners.map(
      (who) => (method: string, path: string, body?: object) =>
        bundleOf(gateway).then((ca) => {
          const agent = agentOf(ca, who)
          return ask(gateway.url + path, method, { agent, ...(body && { body }) }).finally(() =>
            agent.destroy(),
          )
        }),
    )
    if (!alice || !bob) return
    const before = (await bob('GET', PATH)).json.phase
    const asked = await alice('POST', `${PATH}/${name}`, name === 'prepare' ? {} : undefined)
    t.equal(asked.status, 202, `${name} ${asked.text}`)
    t.equal((await bob('GET', PATH)).json.phase, before, `${name} waits`)
    const confirm = `/v1/admin/proposals/${asked.json.proposal_id}/confirm`
    t.equal((await alice('POST', confirm)).status, 403, 'nobody confirms its own')
    const confirmed = await bob('POST', confirm)
    t.equal(confirmed.status, 200, `${name} ${confirmed.text}`)
    const machine = onTheMachine(gateway)
    t.equal((await machine('GET', PATH)).json.phase, phase, name)
  }
  const rows = await gateway.rows({ action: 'ca.rotation_finished' })
  t.match(rows, [{ principal_id: owners[0]?.id, detail: { confirmed_by: owners[1]?.id } }])
})

t.test('a process whose passphrase was rotated meanwhile takes no step, and says why', async (t) => {
  const { gateway, step } = await scene(t)
  const { databaseUrl, dataDir, keyPassphrase } = gateway.settings
  const old = keyPassphrase ?? readFileSync(join(dataDir, 'key-passphrase'), 'utf8').trim()
  const database = await openDatabase(databaseUrl)
  t.teardown(() => database.close())
  await step('prepare')
  const resealed = async (from: string, to: string): Promise<void> => {
    const text = (await readSetting(database, 'authority')) ?? ''
    const value = text.replace(/sallyport-sealed\.[\w.-]+/g, (one) => seal(unseal(one, from), to).trim())
    await past(databaseUrl, `update settings set value = '${value}' where key = 'authority'`)
  }
  const next = 'a passphrase that nobody has had before'
  await resealed(old, next)
  for (const name of ['issue', 'cancel']) {
    t.match(await step(name), { status: 409, json: { message: /Restart it with the new one/ } }, name)
    t.equal((await gateway.admin('GET', PATH)).json.phase, 'prepared', 'nothing is changed')
  }
  t.same(await gateway.rows({ action: 'ca.rotation_issued' }), [])
  await resealed(next, old)
  t.equal((await step('cancel')).status, 200)
  await resealed(old, next)
  t.match(await step('prepare'), { status: 409, json: { message: /Restart it with the new one/ } })
  await resealed(next, old)
  const blocking = t.capture(crypto, 'scryptSync', crypto.scryptSync)
  syncBuiltinESMExports()
  t.equal((await step('prepare')).status, 200)
  t.same(blocking(), [], 'keys are derived beside the loop')
  blocking.restore()
  syncBuiltinESMExports()
})

const PHASES = {
  prepare: ['none', 'prepared'],
  issue: ['prepared', 'issuing'],
  finish: ['issuing', 'none'],
} as const

/** Takes a step at a gateway of its own, which SIGKILL ends before its nth write. Resolves with true if it came to it. */
async function struckAt(
  t: Test,
  nth: number,
  step: string,
  settings: Readonly<Record<string, string>>,
): Promise<boolean> {
  const root = await scratch(t)
  const at = join(root, 'kill-at')
  const { args, env } = killingAt(at)
  const made = await environment(root, 'http://127.0.0.1:9')
  const dataDir = settings.MCP_PROXY_DATA_DIR ?? made.MCP_PROXY_DATA_DIR ?? ''
  const own = { ...made, ...settings, ...env }
  const { child, ready, ended } = startProcess(t, own, args)
  await ready
  writeFileSync(at, String(nth))
  const path = `${PATH}/${step}${step === 'finish' ? '?force=true&reason=stolen' : ''}`
  const ask = overSocket(controlPath(dataDir))
  const answer = await ask('POST', path, step === 'prepare' ? {} : undefined).catch(() => null)
  rmSync(at)
  if (answer) child.kill('SIGKILL')
  t.equal((await ended).signal, 'SIGKILL')
  return answer === null
}

/** A step writes some ten to thirty times; a whole sweep tries each, and takes a quarter of an hour. */
const KILLED_APART = 7
t.setTimeout(WHOLE_SWEEP ? 3_600_000 : 300_000)

const onceIsEnough = ENGINE === 'postgres' && 'it is a SQLite database, which the other run has too'
t.test(
  'killed at any write of a step, the next start goes on before it or after it',
  { skip: onceIsEnough },
  async (t) => {
    const sqlite = (dataDir: string) => ({
      MCP_PROXY_DATA_DIR: dataDir,
      MCP_PROXY_KEY_PASSPHRASE: '',
      MCP_PROXY_DATABASE_URL: `sqlite:${join(dataDir, 'sallyport.db')}`,
    })
    const first = await testGateway(t, { settings: sqlite(join(await scratch(t), 'data')), ownCa: true })
    const bot = await first.enroll('bot', ['llm.chat'])
    await first.close(0)
    let original = first.settings.dataDir
    for (const [name, [before, after]] of Object.entries(PHASES)) {
      let struck = 0
      for (const nth of sweepPlaces(name === 'prepare' ? 2 : KILLED_APART)) {
        const dataDir = join(await scratch(t), 'data')
        cpSync(original, dataDir, { recursive: true })
        const isStruck = await struckAt(t, nth, name, sqlite(dataDir))
        const again = await testGateway(t, { settings: sqlite(dataDir), ownCa: true })
        const { phase } = (await onTheMachine(again)('GET', PATH)).json
        t.ok(phase === before || phase === after, `${name} ${nth}: ${phase}`)
        const ca = await bundleOf(again)
        const isEnded = name === 'finish' && phase === after
        t.equal(await chat({ ...again, ca }, bot), isEnded ? 401 : 200, `${name} ${nth}`)
        await again.close(0)
        struck += isStruck ? 1 : 0
        if (isStruck) continue
        t.equal(phase, after, `${name} is made`)
        t.ok(struck > 0, `${name} was struck ${struck} times`)
        original = dataDir
        break
      }
    }
  },
)

t.test('of replicas on PostgreSQL one is killed at a write of a step, and the other goes on', async (t) => {
  const { url, one } = await twoStages(t)
  const bot = await one.enroll('bot', ['llm.chat'])
  const settings = { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_KEY_PASSPHRASE: one.settings.keyPassphrase ?? '' }
  for (const [name, [before, after]] of Object.entries(PHASES)) {
    const phaseNow = async (): Promise<string> => (await onTheMachine(one)('GET', PATH)).json.phase
    for (let nth = 1; (await phaseNow()) === before; nth += 1) {
      await struckAt(t, nth, name, settings)
      const phase = await phaseNow()
      t.ok(phase === before || phase === after, `${name} ${nth}: ${phase}`)
    }
    const isEnded = name === 'finish'
    const now = async () => chat({ ...one, ca: await bundleOf(one) }, bot)
    t.equal(await eventually(now, (status) => !isEnded || status === 401), isEnded ? 401 : 200, name)
  }
})
