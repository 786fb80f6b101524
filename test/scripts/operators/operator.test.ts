import { X509Certificate } from 'node:crypto'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import {
  PLUGIN_FILES,
  scratch,
  type TestGateway,
  type TestOptions,
  testGateway,
} from '../../support/gateway.ts'
import type { Ran } from '../../support/run.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

/** A gateway, its machine's command line, and a folder for identities. */
async function stage(t: Test, options: TestOptions = {}) {
  const gateway = await testGateway(t, options)
  const folder = await scratch(t)
  const here = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir, ...options.settings }
  return {
    gateway,
    place: (name: string) => join(folder, name),
    /** On the machine of the gateway. */
    local: (...args: string[]) => sallyport(args, here),
    /** On the machine of an operator, who has nothing but a folder. */
    as: (directory: string, ...args: string[]) => sallyport(args, { SALLYPORT_OPERATOR: directory }),
  }
}

const succeeded = (t: Test, ran: Ran, out: RegExp | string = /./): void => {
  t.match(ran, { code: 0, err: '', out })
}

/** Who has done that, and to whom, oldest first; to nobody where it was refused. */
const deeds = async (gateway: TestGateway, action: string): Promise<readonly string[]> =>
  (await gateway.rows({ action, order: 'asc' })).map(
    ({ principal_id: who, detail: { subject } }) => `${who} ${typeof subject === 'string' ? subject : ''}`,
  )

const files = (yaml: string) => ({ ...PLUGIN_FILES, '70-operators.yaml': `plugin: operators\n${yaml}\n` })

const REQUIRED = {
  files: { ...PLUGIN_FILES, '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: required\n' },
}

await t.test(
  'two operators work from two machines, each by its own key and each by its own name',
  async (t) => {
    const { gateway, place, local, as } = await stage(t)
    const [alice, bob] = [place('alice'), place('bob')]
    succeeded(
      t,
      await local('operator', 'add', 'alice', '--role', 'owner', '--out', alice),
      /enrolled acme::operator::alice/,
    )
    for (const name of ['agent.key', 'agent.crt', 'dpop.jwk', 'org-ca.crt', 'gateway.json'])
      t.equal((await stat(join(alice, name))).mode & 0o777, 0o600, name)
    const { subjectAltName } = new X509Certificate(await readFile(join(alice, 'agent.crt')))
    t.match(subjectAltName, /operator\/alice$/)

    succeeded(t, await as(alice, 'operator', 'add', 'bob', '--role', 'granter', '--out', bob))
    succeeded(t, await as(bob, 'operator', 'list'), /^alice +active +\d{4}-\d\d-\d\d .*\n?|^bob +active/m)
    succeeded(
      t,
      await as(bob, 'agent', 'bot', '--caps', 'llm.chat', '--out', place('bot')),
      /enrolled acme::bot/,
    )
    t.match(await as(bob, 'operator', 'add', 'eve', '--role', 'owner', '--out', place('eve')), {
      code: 1,
      out: '',
      err: /^sallyport: .*admin\.operators.*\n$/,
    })
    t.match(await as(bob, 'operator', 'grant', 'bob', '--role', 'owner'), { code: 1, out: '' })
    succeeded(
      t,
      await as(alice, 'operator', 'grant', 'bob', '--role', 'viewer'),
      /bob: admin\.read \(before: admin\.read, admin\.grant, admin\.enroll, admin\.stop\)/,
    )
    t.match(await as(bob, 'agent', 'bot-2', '--out', place('bot-2')), { code: 1, err: /admin\.enroll/ })
    const bobs = ['certificate', 'list', 'acme::operator::bob']
    succeeded(t, await as(alice, 'operator', 'rotate', 'bob', '--out', bob, '--grace-hours', '2'))
    const both = JSON.parse((await as(alice, ...bobs, '--json')).out)
    t.match(both, [{ current: true }, { current: false }])
    const stolen = both[1].cert_thumbprint
    succeeded(t, await as(alice, ...bobs), /accepted until/)
    succeeded(
      t,
      await as(alice, 'certificate', 'end', 'acme::operator::bob', stolen.slice(0, 12)),
      /has ended/,
    )
    t.match(await as(alice, 'certificate', 'end', 'acme::operator::bob', stolen), {
      code: 1,
      err: /^sallyport: no certificate/,
    })
    succeeded(t, await as(alice, 'operator', 'rotate', 'bob', '--out', bob, '--grace-hours', '0'))
    t.equal(JSON.parse((await as(alice, ...bobs, '--json')).out).length, 1)
    succeeded(t, await as(alice, 'operator', 'deactivate', 'bob'))
    t.match(await as(bob, 'operator', 'list'), { code: 1, out: '', err: /^sallyport: .*\n$/ })
    succeeded(t, await as(alice, 'operator', 'reactivate', 'bob'))
    succeeded(t, await as(bob, 'operator', 'show', 'bob'), /"operator_name": "bob"/)
    t.match(JSON.parse((await as(bob, 'operator', 'show', 'bob')).out), { operator_name: 'bob' })
    const listed = JSON.parse((await as(bob, 'operator', 'list', '--json')).out)
    t.equal(listed.length, 2, 'a program reads it')

    t.same(await deeds(gateway, 'operator.created'), [
      `socket:${process.getuid?.()} acme::operator::alice`,
      'acme::operator::alice acme::operator::bob',
      'acme::operator::bob ',
    ])
    t.same(await deeds(gateway, 'agent.created'), ['acme::operator::bob acme::bot', 'acme::operator::bob '])
  },
)

await t.test('every verb that administers speaks for the operator of --as', async (t) => {
  const { gateway, place, local, as } = await stage(t, REQUIRED)
  const alice = place('alice')
  succeeded(t, await local('operator', 'add', 'alice', '--role', 'owner', '--out', alice))
  succeeded(t, await sallyport(['mcp', 'list', '--as', alice]), /no MCP server is registered/)
  succeeded(t, await as(alice, 'rotate-signing-key'))
  t.match(await as(alice, 'admin-secret'), { code: 0, out: /^\S{32}\n$/ })
  succeeded(t, await as(alice, 'secret', 'show'), /^set: yes\nin service: yes$/m)
  t.match(await as(alice, 'secret', 'disable'), { code: 0, out: 'the operator secret is disabled\n' })
  t.match(await as(alice, 'secret', 'enable'), { code: 1, err: /machine/ }, 'not over the network')
  succeeded(t, await local('secret', 'enable'))
  const rows = await gateway.rows({ order: 'asc' })
  const who = (action: string) => rows.filter((row) => row.action === action).map((row) => row.principal_id)
  t.same(who('admin.secret_rotated'), ['acme::operator::alice'])
  t.same(who('admin.secret_disabled'), ['acme::operator::alice'])
  t.match(who('admin.secret_enabled'), ['acme::operator::alice', /^socket:/], 'the refusal first')
})

await t.test(
  'on a listener of its own administration needs no other, proofs and renewal included',
  async (t) => {
    const settings = { MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:0' }
    const { gateway, place, local, as } = await stage(t, { ...REQUIRED, settings })
    const alice = place('alice')
    succeeded(t, await local('operator', 'add', 'alice', '--role', 'owner', '--out', alice))
    const at = ['--gateway', gateway.adminUrl]
    succeeded(t, await as(alice, 'operator', 'list', ...at), /^alice/m)
    t.match(await as(alice, 'operator', 'list', '--gateway', gateway.url), { code: 1 }, 'and is nowhere else')
    const renewed = await sallyport(['renew', '--identity', alice, ...at, '--if-within', '9999'])
    t.match(renewed, { out: /is valid until/ }, 'before its time there is nothing to do')
    succeeded(t, await as(alice, 'agent', 'bot', '--out', place('bot'), ...at))
    const { url } = JSON.parse(await readFile(join(place('bot'), 'gateway.json'), 'utf8'))
    t.equal(url, gateway.url, 'agents are told where agents call')
  },
)

await t.test(
  'what waits for a second operator is told with exit code 3, and confirmed by another',
  async (t) => {
    const { gateway, place, local, as } = await stage(t, { files: files('two_person: [grant, operators]') })
    const [alice, bob] = [place('alice'), place('bob')]
    for (const [name, directory] of [
      ['alice', alice],
      ['bob', bob],
    ] as const)
      succeeded(t, await local('operator', 'add', name, '--role', 'owner', '--out', directory))
    const asked = await as(alice, 'operator', 'add', 'carol', '--role', 'viewer', '--out', place('carol'))
    t.match(asked, {
      code: 3,
      err: '',
      out: /^the change is waiting for a second operator, until .*: sallyport operator confirm prop_\w+; then for its certificate: sallyport operator rotate carol --out /,
    })
    const [id = ''] = /prop_\w+/.exec(asked.out) ?? []
    succeeded(
      t,
      await as(bob, 'operator', 'proposals'),
      new RegExp(`^${id} +acme::operator::alice +operator\\.created`, 'm'),
    )
    t.match(await as(alice, 'operator', 'confirm', id), { code: 1, err: /^sallyport: .*\n$/ }, 'not her own')
    succeeded(t, await as(bob, 'operator', 'confirm', id), /the change is made/)

    const rotated = async (): Promise<Ran> => {
      const ran = await as(alice, 'operator', 'rotate', 'carol', '--out', place('carol'))
      t.equal(ran.code, 3, ran.err)
      const [waiting = ''] = /prop_\w+/.exec(ran.out) ?? []
      return as(bob, 'operator', 'confirm', waiting)
    }
    succeeded(t, await rotated(), /the change is made/)
    const { out } = await rotated()
    const [pem = ''] = /-----BEGIN[\s\S]*-----END CERTIFICATE-----\n/.exec(out) ?? []
    await writeFile(join(place('carol'), 'agent.crt'), pem, { mode: 0o600 })
    succeeded(t, await as(place('carol'), 'operator', 'list'), /^carol/m)

    const other = await as(alice, 'operator', 'grant', 'carol', '--role', 'auditor')
    const [declined = ''] = /prop_\w+/.exec(other.out) ?? []
    succeeded(t, await as(bob, 'operator', 'decline', declined), /is declined/)
    succeeded(t, await as(bob, 'operator', 'proposals'), 'nothing is waiting\n')
    t.match(await as(bob, 'operator', 'confirm', declined), { code: 1 })
    t.equal(
      (await gateway.rows({ action: 'proposal.confirmed' })).length,
      4,
      'three, and the one that was refused',
    )
  },
)

await t.test('a new certificate takes the place of the one before, for a key that never left', async (t) => {
  const { place, local, as } = await stage(t)
  const alice = place('alice')
  succeeded(t, await local('operator', 'add', 'alice', '--role', 'owner', '--out', alice))
  const read = async () => [
    await readFile(join(alice, 'agent.crt'), 'utf8'),
    await readFile(join(alice, 'agent.key'), 'utf8'),
  ]
  const before = await read()
  succeeded(t, await as(alice, 'operator', 'rotate', 'alice', '--out', alice))
  const after = await read()
  t.not(after[0], before[0])
  t.not(after[1], before[1])
  succeeded(t, await as(alice, 'operator', 'list'), /^alice/m)
})

await t.test('what cannot be understood or done is one sentence, and nothing is half-done', async (t) => {
  const { place, local, as } = await stage(t)
  const alice = place('alice')
  const cases: readonly (readonly [RegExp, readonly string[]])[] = [
    [/choose what to do: add, invite, list, /, []],
    [/give one name: /, ['add']],
    [/give its capabilities: /, ['add', 'alice']],
    [
      /--role must be one of viewer, granter, auditor, approver, owner, got "root"/,
      ['add', 'alice', '--role', 'root'],
    ],
    [/use --role or --caps, not both/, ['grant', 'alice', '--role', 'owner', '--caps', 'admin.read']],
    [/capabilities\[0\]/, ['add', 'alice', '--caps', 'llm.chat', '--out', alice]],
    [/there is no operator with the name "nobody": there is none yet/, ['deactivate', 'nobody']],
    [/--gateway needs --as DIR/, ['list', '--gateway', 'https://localhost:1']],
    [/name the proposal: sallyport operator confirm/, ['confirm']],
  ]
  for (const [err, args] of cases)
    t.match(await local('operator', ...args), { code: 1, out: '', err }, args.join(' '))
  t.match(await as(place('nowhere'), 'operator', 'list'), {
    code: 1,
    err: /nowhere: there is no such directory/,
  })
  succeeded(
    t,
    await local('operator', 'list'),
    /^there is no operator yet: make operator NAME=alice ROLE=owner$/m,
  )
  succeeded(t, await local('operator', 'add', 'alice', '--role', 'owner', '--out', alice))
  t.match(await local('operator', 'add', 'bob', '--role', 'owner', '--out', alice), {
    code: 1,
    err: /holds an identity already/,
  })
  t.match(await as(alice, 'operator', 'list', '--gateway', 'https://127.0.0.1:1'), {
    code: 1,
    err: /^sallyport: https:\/\/127\.0\.0\.1:1 cannot be reached as this operator: .*ECONNREFUSED.*\n$/,
  })
})
