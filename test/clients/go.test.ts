import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { digitalSignatureKeyUsage, leafConstraints } from '../../certs/authority/builder.ts'
import { caExtensions, DAY_MS, odd } from '../support/certs/made.ts'
import { run, without } from '../support/certs/openssl.ts'
import { type Foreign, trustDomain } from '../support/foreign.ts'
import { scratch, type TestGateway, testGateway } from '../support/gateway.ts'

const SOURCE = join(import.meta.dirname, '../support/clients/go/main.go')

/** The Go program, built from Go's own library alone, and a call of it with somebody's certificate. */
async function goClient(t: Test, { url, ca }: TestGateway) {
  const root = await scratch(t)
  const program = join(root, 'client')
  const go = ['GO111MODULE=off', 'GOPROXY=off', 'GOTOOLCHAIN=local', 'go', 'build', '-o', program, SOURCE]
  const built = await run('env', root, go)
  t.equal(built.status, 0, built.text)
  let count = 0
  return async (
    { certPem, keyPem }: Pick<Foreign, 'certPem' | 'keyPem'>,
    ...size: readonly string[]
  ): Promise<string> => {
    const directory = join(root, `${++count}`)
    mkdirSync(directory)
    const files = { 'ca.crt': ca, 'agent.crt': certPem, 'agent.key': keyPem }
    for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
    return (await run(program, directory, [url, ...Object.keys(files), ...size])).text
  }
}

/** A leaf of a CA in two tiers that has no name in common with ours, and what leads from it to the root. */
async function corporate(name: string) {
  const dates = { notBefore: Date.now() - DAY_MS, notAfter: Date.now() + DAY_MS }
  const root = await odd({ name: `${name} root`, extensions: caExtensions(1), ...dates })
  const tier = await odd({ name: `${name} tier`, extensions: caExtensions(0), ...dates }, root)
  const leaf = await odd(
    { name, extensions: [leafConstraints(), digitalSignatureKeyUsage()], ...dates },
    tier,
  )
  const keyPem = String(leaf.key.export({ type: 'pkcs8', format: 'pem' }))
  return { caPem: root.pem, certPem: leaf.pem, chainPem: leaf.pem + tier.pem, keyPem }
}

t.test(
  'docs/protocol.md#listeners a Go client presents an SVID, and a leaf of another CA alone',
  { skip: without('go') },
  async (t) => {
    const gateway = await testGateway(t)
    const spire = await trustDomain()
    const [svid, rotated, byoca, stranger] = await Promise.all([
      spire.svid('spiffe://spire.test/bot'),
      spire.svid('spiffe://spire.test/bot'),
      corporate('corp-bot'),
      corporate('stranger'),
    ])
    const attached = { ca_pem: byoca.caPem, kind: 'organisation' }
    t.match(await gateway.admin('POST', '/v1/admin/ca/attach', attached), { status: 201 })
    const enrolled = [
      await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', {
        agent_name: 'svid-bot',
        capabilities: ['llm.chat'],
        svid_pem: svid.certPem,
        svid_key_pem: svid.keyPem,
        trust_bundle_pem: spire.caPem,
      }),
      await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', {
        agent_name: 'corp-bot',
        capabilities: ['llm.chat'],
        cert_pem: byoca.chainPem,
        private_key_pem: byoca.keyPem,
      }),
    ]
    for (const { status, text } of enrolled) t.equal(status, 201, text)
    const call = await goClient(t, gateway)
    t.match(await call(svid), /^200 /, 'the SVID')
    t.match(await call(rotated), /^200 /, 'its successor, known by its SPIFFE id')
    t.match(await call(byoca), /^200 /, 'the leaf without its intermediate')
    for (const size of ['300000', '8000000', '40000000'])
      t.match(await call(stranger, size), /^401 .*certificate_not_pinned/, `${size} bytes are refused`)
    t.match(await call(byoca, '40000000'), /^413 .*body_too_large/, 'and more than a call may have')
    t.match(await call(stranger), /^401 .*certificate_not_pinned/, 'a stranger shows its own, and is nobody')
  },
)
