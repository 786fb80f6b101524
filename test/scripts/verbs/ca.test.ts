import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { byCorporateCa, trustDomain } from '../../support/foreign.ts'
import { scratch, testGateway } from '../../support/gateway.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

await t.test(
  'sallyport ca: a CA is attached, vouches for an agent in place of another, and is detached',
  async (t) => {
    const gateway = await testGateway(t)
    const folder = await scratch(t)
    const ca = (...args: string[]) =>
      sallyport(['ca', ...args], { MCP_PROXY_DATA_DIR: gateway.settings.dataDir })
    t.match(await ca('list'), { code: 0, out: 'no CA is attached\n' })
    const [old, next] = [await trustDomain(), await trustDomain()]
    const digests: string[] = []
    for (const [index, { caPem }] of [old, next].entries()) {
      const file = join(folder, `${index}.pem`)
      await writeFile(file, caPem)
      const { code, out } = await ca('attach', file, '--kind', 'spiffe')
      t.equal(code, 0)
      digests.push(/^attached ([0-9a-f]{64}) /.exec(out)?.[1] ?? '')
      if (index > 0) continue
      const { certPem, keyPem } = await old.svid('spiffe://spire.test/bot')
      const body = { agent_name: 'bot', svid_pem: certPem, svid_key_pem: keyPem }
      t.equal((await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)).status, 201)
    }
    const [first = '', second = ''] = digests
    t.match(await ca('detach', first), { code: 1, err: /rely on this CA alone/ })
    t.match(await ca('trust', second.slice(0, 12), '--agents-of', first.slice(0, 12)), {
      code: 0,
      out: `${second} vouches for 1 more\n`,
    })
    t.match(await ca('list'), { code: 0, out: new RegExp(`${first} +spiffe +\\S+ +1 +0 `) })
    t.match(await ca('distrust', second, 'acme::bot'), {
      code: 0,
      out: /does not vouch for acme::bot any more/,
    })
    t.match(await ca('trust', second, 'acme::bot'), { code: 0, out: `${second} vouches for acme::bot\n` })
    t.match(await ca('detach', first), { code: 0, out: `${first} is detached\n` })
    t.match(await ca('bundle', join(folder, '0.pem'), 'acme::bot', '--grace-hours', '1'), {
      code: 0,
      out: 'the trust bundle of acme::bot is replaced\n',
    })
    const twice = join(folder, 'twice.pem')
    await writeFile(twice, `${old.caPem}${old.caPem}`)
    t.match(await ca('bundle', twice, 'acme::bot'), {
      code: 0,
      out: /is replaced\nleft out line \d+, O=acme, CN=spire: The text holds this certificate twice\.\n/,
    })
    const own = await byCorporateCa('own')
    const corporate = { ca_pem: own.caPem, kind: 'organisation' }
    await gateway.admin('POST', '/v1/admin/ca/attach', corporate)
    const [cert, key] = [join(folder, 'leaf.pem'), join(folder, 'leaf.key')]
    await writeFile(cert, own.certPem)
    await writeFile(key, own.keyPem)
    const enrolling = { agent_name: 'own', cert_pem: own.certPem, private_key_pem: own.keyPem }
    await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', enrolling)
    t.match(await ca('leaf', cert, key, 'acme::own'), {
      code: 0,
      out: /^acme::own is known by [0-9a-f]{64}\n$/,
    })
    t.match(await ca('detach', second, '--lock-out'), { code: 0 })
    for (const args of [
      ['attach', 'x.pem'],
      ['trust', 'ab'],
      ['trust', 'ab', 'acme::bot', '--agents-of', 'cd'],
      ['detach'],
      ['leaf', 'x.pem', 'x.key'],
      ['bundle', 'x.pem'],
      ['bundle', 'x.pem', 'acme::bot', '--grace-hours', '721'],
    ])
      t.match(
        await ca(...args),
        { code: 1, err: /give the file and its kind|name the (CA|agents?)|from 0 to 720/ },
        args.join(' '),
      )
    t.match(await ca('detach', 'ff'), { code: 1, err: /no attached CA has a digest that begins with ff/ })
  },
)

await t.test("sallyport ca: the gateway's own CA is replaced in three steps", async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', ['llm.chat'])
  const ca = (...args: string[]) =>
    sallyport(['ca', ...args], { MCP_PROXY_DATA_DIR: gateway.settings.dataDir })
  t.match(await ca('status'), {
    code: 0,
    out: /^phase: none\nissuing: [0-9a-f]{64} under the root [0-9a-f]{64}, ends 20/,
  })
  t.match(await ca('issue'), { code: 1, err: /No CA is prepared/ })
  t.match(await ca('prepare', '--intermediate'), {
    code: 0,
    out: /phase: prepared\n.*\nnext: .*\nhold the old one: 1 active/,
  })
  t.match(await ca('cancel'), { code: 0, out: /^phase: none/ })
  t.match(await ca('prepare'), { code: 0 })
  t.match(await ca('issue'), { code: 0, out: /phase: issuing\n.*\nold: .*\nhold.*\n {2}acme::bot\n/ })
  t.match(await ca('finish', '--dry-run'), { code: 0, out: /that would be refused: 0/ })
  t.match(await ca('finish'), { code: 1, err: /Active principals still hold certificates/ })
  t.match(await ca('finish', '--force'), { code: 1, err: /say why/ })
  t.match(await ca('finish', '--force', '--reason', 'stolen'), { code: 0, out: /^phase: none/ })
  t.match(await ca('status', '--json'), { code: 0, out: /"phase": "none"/ })
})
