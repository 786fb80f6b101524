import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import {
  createFetch,
  type EnrollOptions,
  enrollByoca,
  enrollSpiffe,
  GatewayRefusal,
  mint,
} from '../../../scripts/client/client.ts'
import { type Made, madeAuthority } from '../../support/certs/made.ts'
import { ADMIN_SECRET, scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { sallyport } from '../../support/run.ts'

const FILES = ['agent.crt', 'agent.key', 'dpop.jwk', 'gateway.json', 'org-ca.crt']

/** What enrolling takes, with a place for the identity in a directory of its own. */
async function optionsOf(
  t: Test,
  gateway: TestGateway,
): Promise<EnrollOptions & { readonly parent: string }> {
  const parent = await scratch(t)
  return {
    gatewayUrl: gateway.url,
    adminSecret: ADMIN_SECRET,
    ca: gateway.ca,
    name: 'bot',
    capabilities: ['llm.chat'],
    displayName: 'A bot',
    directory: join(parent, 'agents', 'bot'),
    parent,
  }
}

/** A certificate of another authority than the gateway's own, as its owner would hold it. */
async function foreign(
  spiffeId = 'spiffe://sallyport.local/acme/bot',
): Promise<Made & { cert: string; key: string }> {
  const made = await madeAuthority(Date.now())
  const wanted = { commonName: 'acme::bot', spiffeId }
  const { chainPem, privateKeyPem } = await issueClientCertificate(made.authority, wanted, {
    at: Date.now(),
    days: 1,
  })
  return { ...made, cert: chainPem, key: privateKeyPem }
}

/** Whether the identity works, with DPoP, and its key is the one that the gateway has registered. */
async function works(t: Test, gateway: TestGateway, directory: string): Promise<void> {
  t.same((await readdir(directory)).toSorted(), FILES)
  for (const name of FILES) t.equal((await stat(join(directory, name))).mode & 0o777, 0o600, name)
  t.equal((await stat(directory)).mode & 0o777, 0o700)
  const models = await createFetch(directory)(`${gateway.url}/v1/models`)
  t.equal(models.status, 200, await models.text())
  const { json } = await gateway.admin('GET', '/v1/admin/agents/acme::bot')
  t.match(json, { display_name: 'A bot', capabilities: ['llm.chat'], dpop_jkt: /^[\w-]{43}$/ })
  const [row] = await gateway.rows({ action: 'token.issued' })
  t.equal(row?.dpop_jkt, json.dpop_jkt)
}

await t.test(
  'docs/protocol.md#principals mint: the identity is written whole, its DPoP key registered',
  async (t) => {
    const gateway = await testGateway(t)
    const options = await optionsOf(t, gateway)
    const enrolled = await mint(options)
    t.same(enrolled, {
      agentId: 'acme::bot',
      directory: options.directory,
      capabilities: ['llm.chat'],
      apiKey: null,
    })
    await works(t, gateway, options.directory)
  },
)

await t.test(
  'docs/protocol.md#principals enrollByoca: the given certificate, and an API key that is shown once',
  async (t) => {
    const gateway = await testGateway(t)
    const options = await optionsOf(t, gateway)
    const { cert, key, rootPem } = await foreign()
    await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: rootPem, kind: 'organisation' })
    const enrolled = await enrollByoca({ ...options, certPem: cert, privateKeyPem: key })
    t.match(enrolled.apiKey, /^sk_/)
    await works(t, gateway, options.directory)
    t.equal(await readFile(join(options.directory, 'agent.key'), 'utf8'), key)
  },
)

await t.test(
  'docs/protocol.md#principals enrollSpiffe: an SVID under the bundle that comes with it',
  async (t) => {
    const gateway = await testGateway(t)
    const options = await optionsOf(t, gateway)
    const { cert, key, rootPem } = await foreign()
    await enrollSpiffe({ ...options, svidPem: cert, svidKeyPem: key, trustBundlePem: rootPem })
    await works(t, gateway, options.directory)
  },
)

await t.test(
  'a refusal is thrown with the sentence, reason and status, and nothing is left behind',
  async (t) => {
    const gateway = await testGateway(t)
    const options = await optionsOf(t, gateway)
    const { cert, key } = await foreign()
    const cases: [enroll: () => Promise<unknown>, like: Record<string, unknown>][] = [
      [
        () => mint({ ...options, adminSecret: 'wrong-secret-of-mine' }),
        { status: 403, reason: 'admin_secret_invalid' },
      ],
      [
        () => mint({ ...options, name: 'no/name' }),
        { status: 422, reason: 'body_unprocessable', message: /^agent_name: / },
      ],
      [
        () => enrollByoca({ ...options, certPem: cert, privateKeyPem: key }),
        { status: 422, reason: String, message: String },
      ],
    ]
    for (const [enroll, like] of cases) {
      const error = await enroll().catch((caught: unknown) => caught)
      t.ok(error instanceof GatewayRefusal)
      t.match(error, like)
    }
    t.same(await readdir(join(options.parent, 'agents')), [])
    t.same((await gateway.admin('GET', '/v1/admin/agents')).json, [])
  },
)

await t.test('a directory that holds something is refused before anything is enrolled', async (t) => {
  const gateway = await testGateway(t)
  const options = await optionsOf(t, gateway)
  await writeFile(join(options.parent, 'agent.key'), 'of somebody else')
  await t.rejects(mint({ ...options, directory: options.parent }), {
    message: /is not empty: choose another/,
  })
  t.same((await gateway.admin('GET', '/v1/admin/agents')).json, [])
  t.same(await readdir(options.parent), ['agent.key'])
})

await t.test('the operator secret goes to the gateway of that CA and to no other', async (t) => {
  const [gateway, other] = [await testGateway(t), await testGateway(t, { ownCa: true })]
  const options = await optionsOf(t, gateway)
  await t.rejects(mint({ ...options, ca: other.ca }), { code: /CERT|UNABLE/ })
  await t.rejects(mint({ ...options, gatewayUrl: gateway.url.replace('https:', 'http:') }), {
    message: /^the gateway's URL must be like https:/,
  })
  t.same((await gateway.admin('GET', '/v1/admin/agents')).json, [])
})

await t.test(
  'sallyport enroll: from the command line, with the secret from where nobody sees it',
  async (t) => {
    const gateway = await testGateway(t)
    const { parent, directory } = await optionsOf(t, gateway)
    const ca = join(parent, 'org-ca.crt')
    await writeFile(ca, gateway.ca)
    const args = [
      'enroll',
      'mint',
      'bot',
      '--gateway',
      gateway.url,
      '--ca',
      ca,
      '--caps',
      'llm.chat, http.get',
    ]
    const enroll = (...more: string[]) => sallyport([...args, ...more], {}, `${ADMIN_SECRET}\n`)
    const ran = await enroll('--out', directory, '--display-name', 'A bot')
    t.match(ran, {
      code: 0,
      err: '',
      out: /^enrolled acme::bot \(capabilities: http\.get, llm\.chat\)|llm\.chat, http\.get/,
    })
    t.same((await readdir(directory)).toSorted(), FILES)
    t.match(await enroll('--out', directory), { code: 1, out: '', err: /^sallyport: .* is not empty/ })
    t.match(await enroll('--out', join(parent, 'again')), { code: 1, err: /^sallyport: .*exists/i })
    const file = join(parent, 'secret')
    await writeFile(file, 'wrong-secret-of-mine\n')
    t.match(await enroll('--out', join(parent, 'again'), '--secret-file', file), {
      code: 1,
      err: /X-Admin-Secret/,
    })
    t.match(await sallyport(['enroll', 'guess', 'bot']), {
      code: 1,
      err: /byoca\|spiffe\|mint/,
    })
  },
)
