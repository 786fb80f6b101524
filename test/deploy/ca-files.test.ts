import { generateKeyPairSync } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { caExtensions, DAY_MS, odd } from '../support/certs/made.ts'
import { scratch, testGateway } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'
import { run } from '../support/run.ts'

await t.test(
  'a server of a private CA is reached with its file, and a file that is none is told',
  async (t) => {
    const gateway = await testGateway(t)
    const directory = await scratch(t)
    const file = async (name: string, text: string): Promise<string> => {
      const path = join(directory, name)
      await writeFile(path, text)
      return path
    }
    const withCas = async (path: string | null) => {
      const env = path === null ? {} : { NODE_EXTRA_CA_CERTS: path }
      const { out, err } = await run('test/support/deploy/trusting.ts', [gateway.url], env)
      return JSON.parse(out || JSON.stringify(err))
    }
    t.same(await withCas(await file('ca.crt', gateway.ca)), { reached: 200, faults: [] })
    const unknown = /^(?:SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_)/
    t.match(await withCas(null), { reached: unknown, faults: [] }, 'nobody is trusted without one')
    for (const path of [join(directory, 'away.crt'), directory, await file('key.pem', 'no certificate')])
      t.match(await withCas(path), {
        reached: unknown,
        faults: [`no CA was read from NODE_EXTRA_CA_CERTS="${path}"`],
      })
    const key = String(generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const damaged = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
    const expired = await odd({ name: 'gone', extensions: caExtensions(0), notAfter: Date.now() - DAY_MS })
    const path = await file('odd.crt', `# ours\n\n${damaged}${key}${expired.pem}${gateway.ca}\n# end\n`)
    const cure = `: take it out of NODE_EXTRA_CA_CERTS="${path}"`
    t.same(
      await withCas(path),
      {
        reached: 200,
        faults: [
          `the block at line 3 cannot be read${cure}`,
          `the block at line 6 is no certificate: PRIVATE KEY${cure}`,
          `the block at line 9 has expired: O=acme, CN=gone${cure}`,
        ],
      },
      'the sound one counts, and each odd one is told',
    )
  },
)

await t.test('a gateway says at its start that a file of CAs holds none, and serves', async (t) => {
  const env = await environment(await scratch(t), 'http://127.0.0.1:9')
  const { ready, output } = startProcess(t, { ...env, NODE_EXTRA_CA_CERTS: '/nowhere/ca.crt' })
  await ready
  t.match(output(), /"level":40,.*no CA was read from NODE_EXTRA_CA_CERTS=/)
})
