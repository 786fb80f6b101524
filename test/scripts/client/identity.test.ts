import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { readIdentity } from '../../../scripts/client/client.ts'
import { dpopKeyIn, publicDpopJwk } from '../../../scripts/client/signing/dpop-key.ts'

const GATEWAY = JSON.stringify({ url: 'https://localhost:9443', agent_id: 'acme::bot' })

const MAKER = `
  const { dpopKeyIn } = await import(process.argv[1])
  process.stdout.write('ready')
  for await (const _ of process.stdin);
  process.stdout.write(JSON.stringify(dpopKeyIn(process.argv[2])))
`

/** An identity directory whose certificate nobody looks at. Null leaves a file out. */
async function directoryOf(t: Test, files: Readonly<Record<string, string | null>> = {}): Promise<string> {
  const directory = t.testdir({})
  const all = {
    'agent.crt': 'CERT',
    'agent.key': 'KEY',
    'org-ca.crt': 'CA',
    'gateway.json': GATEWAY,
    ...files,
  }
  for (const [name, content] of Object.entries(all)) {
    if (content !== null) await writeFile(join(directory, name), content, { mode: 0o600 })
  }
  return directory
}

await t.test('the DPoP key is made on first use, for its owner alone, and stays', async (t) => {
  const directory = await directoryOf(t)
  const first = readIdentity(directory)
  t.match(first, { url: 'https://localhost:9443', agentId: 'acme::bot', ca: 'CA', cert: 'CERT', key: 'KEY' })
  t.match(first.dpopJwk, { kty: 'EC', crv: 'P-256', d: /^[\w-]{43}$/ })
  t.equal((await stat(join(directory, 'dpop.jwk'))).mode & 0o777, 0o600)
  t.same(readIdentity(directory).dpopJwk, first.dpopJwk)
  t.same((await readdir(directory)).toSorted(), [
    'agent.crt',
    'agent.key',
    'dpop.jwk',
    'gateway.json',
    'org-ca.crt',
  ])
  t.same(
    Object.keys(publicDpopJwk(first.dpopJwk)),
    ['crv', 'kty', 'x', 'y'],
    'what is shown has no private part',
  )
})

await t.test('of processes that make the key at once all get the one that stays', async (t) => {
  const directory = await directoryOf(t)
  const makers = await Promise.all(Array.from({ length: 4 }, () => maker(directory)))
  const made = await Promise.all(makers.map((make) => make()))
  const kept = await readFile(join(directory, 'dpop.jwk'), 'utf8')
  for (const jwk of made) t.equal(`${jwk}\n`, kept)
  t.notOk((await readdir(directory)).some((name) => name.endsWith('.tmp')))
})

/** A process that stands ready to make the key; the function that lets it, and gives the key it got. */
async function maker(directory: string): Promise<() => Promise<string>> {
  const module = join(import.meta.dirname, '../../../scripts/client/signing/dpop-key.ts')
  const args = ['--input-type=module', '--eval', MAKER, '--', module, directory]
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  await once(child.stdout, 'readable')
  child.stdout.read()
  return () => {
    child.stdin.end('now')
    return text(child.stdout)
  }
}

await t.test('a key that others can read is refused, with the command that mends it', async (t) => {
  for (const name of ['agent.key', 'dpop.jwk']) {
    await t.test(name, async (t) => {
      const directory = await directoryOf(t)
      readIdentity(directory)
      await chmod(join(directory, name), 0o640)
      t.throws(() => readIdentity(directory), {
        message: new RegExp(`${name} can be read .*: run chmod 600 `),
      })
    })
  }
})

await t.test('a file that is no key is refused and left alone', async (t) => {
  const rsa = JSON.stringify({ kty: 'RSA', n: 'x', e: 'AQAB', d: 'x' })
  for (const content of [
    '',
    'no JSON',
    'null',
    rsa,
    JSON.stringify({ kty: 'EC', crv: 'P-256', x: 'a', y: 'b' }),
  ]) {
    await t.test(content || 'empty', async (t) => {
      const directory = await directoryOf(t, { 'dpop.jwk': content })
      t.throws(() => dpopKeyIn(directory), { message: /dpop\.jwk does not hold a private EC P-256 key/ })
      t.equal(await readFile(join(directory, 'dpop.jwk'), 'utf8'), content)
    })
  }
})

await t.test('an identity that is not whole is refused in one sentence', async (t) => {
  const cases: [files: Record<string, string | null>, message: RegExp][] = [
    [{ 'agent.key': null }, /is not an identity directory: it has no agent\.key$/],
    [{ 'agent.crt': null }, /agent\.crt/],
    [{ 'gateway.json': null }, /gateway\.json must say where the gateway is/],
    [{ 'gateway.json': '{}' }, /gateway\.json must say where the gateway is/],
    [{ 'gateway.json': '{' }, /gateway\.json is not JSON$/],
    ...[
      'http://localhost:9443',
      'https://localhost:9443/v1',
      'https://u:p@localhost',
      'https://localhost/?a',
      'localhost',
    ].map((url): [Record<string, string>, RegExp] => [
      { 'gateway.json': JSON.stringify({ url }) },
      /^the gateway's URL must be like https:/,
    ]),
  ]
  for (const [files, message] of cases) {
    await t.test(JSON.stringify(files), async (t) => {
      const directory = await directoryOf(t, files)
      t.throws(() => readIdentity(directory), { message })
    })
  }
})

await t.test('a URL that is given takes the place of the one in the file', async (t) => {
  const directory = await directoryOf(t, { 'gateway.json': null })
  t.match(readIdentity(directory, 'https://elsewhere:1'), { url: 'https://elsewhere:1', agentId: null })
  await mkdir(join(directory, 'empty'))
  t.throws(() => readIdentity(join(directory, 'empty')), { message: /it has no agent\.key/ })
})
