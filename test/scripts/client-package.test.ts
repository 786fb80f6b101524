import { readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { layClientPackage } from '../../scripts/client-package.ts'
import { without } from '../support/certs/openssl.ts'
import { type Ran, run } from '../support/clients/files.ts'
import { identityDirectory } from '../support/clients/identity.ts'
import { CHAT, scratch, type TestGateway, testGateway } from '../support/gateway.ts'

const ROOT = join(import.meta.dirname, '../..')
const BIN = join(ROOT, 'node_modules/.bin')
const skip = without('npm')

/** Runs a program in a directory, with nothing of this machine's environment but its PATH. */
const inside = (directory: string, program: string, args: readonly string[]): Promise<Ran> =>
  run('env', ['-i', '-C', directory, `PATH=${process.env.PATH}`, `HOME=${directory}`, program, ...args])

async function done(t: Test, ran: Promise<Ran>): Promise<string> {
  const { code, out, err } = await ran
  t.equal(code, 0, out + err)
  return out
}

/** Builds the package and installs its tarball into an empty directory, without a network. */
async function installed(t: Test): Promise<string> {
  const root = await scratch(t)
  const [dist, target, app] = [join(root, 'dist'), join(root, 'package'), join(root, 'app')]
  for (const config of ['tsconfig.build.json', 'tsconfig.types.json']) {
    await done(t, inside(ROOT, join(BIN, 'tsc'), ['-p', config, '--outDir', dist]))
  }
  layClientPackage(ROOT, dist, target)
  // Its one dependency, as npm would bring it.
  for (const packed of [target, join(ROOT, 'node_modules/undici')]) {
    const args = ['pack', packed, '--ignore-scripts', '--silent', '--pack-destination', root]
    await done(t, inside(root, 'npm', args))
  }
  await mkdir(app)
  const { dependencies, version } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'))
  const tarballs = [`../undici-${dependencies.undici}.tgz`, `../sallyport-client-${version}.tgz`]
  await done(
    t,
    inside(app, 'npm', ['install', '--offline', '--no-audit', '--no-fund', '--silent', ...tarballs]),
  )
  return app
}

const call = ({ url }: TestGateway, fetch: string): string => `
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: ${JSON.stringify(JSON.stringify(CHAT))} }
  const answer = await ${fetch}('${url}/v1/chat/completions', init)
  console.log(answer.status, (await answer.json()).choices[0].message.content)
`

t.test(
  'sallyport-client: its tarball is installed offline into an empty directory, and calls',
  { skip },
  async (t) => {
    const app = await installed(t)
    const gateway = await testGateway(t)
    const identity = await identityDirectory(t, gateway)
    const manifest = JSON.parse(readFileSync(join(app, 'node_modules/sallyport-client/package.json'), 'utf8'))
    const whole = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    t.same(Object.keys(manifest.dependencies), ['undici'], 'it brings what a client needs')
    t.same([manifest.version, manifest.license], [whole.version, whole.license])
    const node = (args: readonly string[]) => inside(app, process.execPath, args)
    const program = async (name: string, text: string, before: readonly string[] = []): Promise<Ran> => {
      await writeFile(join(app, name), text)
      return node([...before, name])
    }
    const served = { code: 0, out: '200 hello\n', err: '' }

    const esm = `import { createFetch } from 'sallyport-client'\n${call(gateway, `createFetch('${identity}')`)}`
    t.same(await program('app.mjs', esm), served)
    const cjs = `const { createFetch } = require('sallyport-client');(async () => {${call(gateway, `createFetch('${identity}')`)}})()`
    t.same(await program('app.cjs', cjs), served, 'also for require')
    const preload = [
      'env',
      `SALLYPORT_IDENTITY=${identity}`,
      process.execPath,
      '--import',
      'sallyport-client/register',
    ]
    await writeFile(join(app, 'own.mjs'), call(gateway, 'fetch'))
    t.same(await inside(app, 'env', [...preload.slice(1), 'own.mjs']), served, 'a program without a change')

    const sallyport = (...args: string[]) => inside(app, join(app, 'node_modules/.bin/sallyport'), args)
    t.same(await sallyport('--version'), { code: 0, out: `${whole.version}\n`, err: '' })
    t.match(await sallyport('--help'), {
      code: 0,
      out: /^ {2}connect .*\n {2}renew .*\n {2}receipt .*\n {2}env /m,
    })
    t.match(await sallyport('start'), { code: 2, err: /"start" is not a verb/ })
    t.match(await sallyport('renew', '--identity', identity), { code: 0, out: /is valid until/ })
    t.match(await sallyport('env', '--identity', identity), { code: 0, out: /OPENAI_BASE_URL/ })

    const typed = `import { createFetch, type FetchOptions, GatewayRefusal, readIdentity, version } from 'sallyport-client'
    const options: FetchOptions = { scope: 'llm.chat' }
    const fetch: typeof globalThis.fetch = createFetch(readIdentity('a'), options)
    export const all: [typeof fetch, string, number] = [fetch, version, new GatewayRefusal(1, '', '', true).status]
    // @ts-expect-error: it takes a directory or an identity
    createFetch(1)
  `
    await writeFile(join(app, 'app.mts'), typed)
    const checked = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2024', '--types', 'node']
    const types = ['--typeRoots', join(ROOT, 'node_modules/@types'), '--ignoreConfig', 'app.mts']
    await done(t, inside(app, join(BIN, 'tsc'), [...checked, ...types]))

    // What an older Node lacks would be a syntax error as soon as it is linked.
    const old = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.20.2' } })
    const failed = await import('sallyport-client').catch(({ message }) => message)
    console.log(failed)
  `
    const sentence =
      'the client of sallyport needs Node 22.19.0 or newer, this is 20.20.2: install it from https://nodejs.org\n'
    t.same(await program('old.mjs', old), { code: 0, out: sentence, err: '' })
    const place = join(app, 'node_modules/sallyport-client/dist')
    for (const file of ['scripts/client/index.js', 'scripts/client/cli.js', 'scripts/register.js']) {
      const links = [
        ...readFileSync(join(place, file), 'utf8').matchAll(/^(?:import|export) .*from '([^']+)'/gm),
      ]
      const linked = links.map(([, specifier]) => specifier)
      const harmless = [
        'node:module',
        './needed-node.js',
        './client/needed-node.js',
        '../proxy/boot/runtime-check.js',
      ]
      t.same(
        linked.filter((specifier) => !harmless.includes(specifier ?? '')),
        [],
        file,
      )
    }
  },
)
