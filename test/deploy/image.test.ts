import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { Agent } from 'node:https'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { without } from '../support/certs/openssl.ts'
import { copiesOf, environmentOf, every, only, stagesOf } from '../support/deploy/dockerfile.ts'
import { compileInto, layModules, layProgram, ROOT } from '../support/deploy/package-tree.ts'
import { ask, scratch } from '../support/gateway.ts'

const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
const [globals = [], build = [], image = []] = stagesOf(read('Dockerfile'))
const words = (word: string): readonly string[] => JSON.parse(only(image, word))
const start = [...words('ENTRYPOINT'), ...words('CMD')]
const health = /CMD (\[.*\])$/.exec(only(image, 'HEALTHCHECK'))?.[1] ?? '[]'

t.test('the image runs as nobody, with the flags of npm start, and needs no shell', async (t) => {
  t.match(only(image, 'USER'), /^[1-9]\d{3,}:[1-9]\d{3,}$/, 'by number: runAsNonRoot looks at it')
  t.equal(only(image, 'STOPSIGNAL'), 'SIGTERM')
  const { scripts } = JSON.parse(read('package.json'))
  t.same(
    ['node', ...start.slice(1)].join(' '),
    scripts.start.replace('proxy/main.ts', '/app/dist/proxy/main.js'),
  )
  t.same(every(image, 'RUN'), [], 'nothing is run in it while it is built: it has no shell')
  t.notMatch(every(image, 'ENV').join(), /SECRET|PASSPHRASE|TOKEN|KEY/)
  t.match(every(globals, 'ARG').join('\n'), /^NODE_IMAGE=node:24\.\d+\.\d+-\S+-slim\nBASE_IMAGE=\S+:nonroot$/)
  const labels = only(image, 'LABEL')
  for (const name of ['title', 'description', 'licenses', 'version', 'revision']) {
    t.match(labels, `org.opencontainers.image.${name}="`, name)
  }
})

t.test(
  'the image has what is compiled, what it needs and the operators’ files, and nothing else',
  async (t) => {
    const named = copiesOf(image).map(({ source }) => source)
    t.same(named, [
      '/usr/local/bin/gateway-node',
      '/src/package.json',
      '/src/node_modules',
      '/src/dist',
      '/src/plugins/config',
      'deploy/postgres',
      'LICENSE',
      '/data',
    ])
    const owned = copiesOf(image).filter(({ owner }) => owner !== null)
    t.same(
      owned.map(({ target }) => target),
      ['/data'],
      'the user owns no program',
    )
    const sources = every(build, 'COPY').flatMap((rest) => rest.split(' ').slice(0, -1))
    for (const path of [...sources, 'deploy/postgres', 'LICENSE']) {
      t.ok(existsSync(join(ROOT, path)), path)
      t.ok(read('.dockerignore').split('\n').includes(`!${path}`), `${path} reaches the builder`)
    }
    t.match(read('.dockerignore').split('\n').slice(0, 2).at(-1), '*', 'and nothing that is not named')
    const { include } = JSON.parse(read('tsconfig.build.json'))
    for (const folder of include) t.ok(sources.includes(folder), `${folder} is compiled`)
  },
)

const root = process.getuid?.() === 0
const skip = (root ? false : 'it needs root, to change the root directory') || without('ldd')

/** Builds the image's files below a directory, as the stages of the Dockerfile do. Returns the directory and the user. */
async function built(t: Test): Promise<{ readonly rootfs: string; readonly user: string }> {
  const rootfs = join(await scratch(t), 'rootfs')
  const [uid = 0, gid = 0] = only(image, 'USER').split(':').map(Number)
  const node = only(image, 'WORKDIR')
  mkdirSync(join(rootfs, node), { recursive: true })
  for (const { source, target, owner } of copiesOf(image)) {
    const to = join(rootfs, resolve(node, target))
    if (source === '/src/dist') compileInto(to)
    else if (source === '/src/node_modules') layModules(join(rootfs, node), /^node_modules\/node-linux-/)
    else if (source === '/data') mkdirSync(to, { mode: 0o700 })
    else if (source !== '/usr/local/bin/gateway-node')
      cpSync(join(ROOT, source.replace(/^\/src\//, '')), to, { recursive: true })
    if (owner !== null) chownSync(to, uid, gid)
  }
  layProgram(rootfs, process.execPath, '/usr/local/bin/node')
  chmodSync(rootfs, 0o755)
  return { rootfs, user: only(image, 'USER') }
}

t.test(
  'it starts on a bare root as that user, is healthy, serves, and ends at SIGTERM',
  { skip },
  async (t) => {
    const { rootfs, user } = await built(t)
    t.same(readdirSync(join(rootfs, 'app')).toSorted(), [
      'LICENSE',
      'deploy',
      'dist',
      'node_modules',
      'package.json',
      'plugins',
    ])
    t.notOk(existsSync(join(rootfs, 'app/node_modules/typescript')), 'nothing of development')
    const env = { ...environmentOf(image), MCP_PROXY_LISTEN: '127.0.0.1:0', MCP_PROXY_LOG_LEVEL: 'info' }
    const inside = (command: readonly string[]): readonly string[] => [
      `--userspec=${user}`,
      rootfs,
      ...command,
    ]
    // `env -i`: nothing of what runs the tests comes along.
    const clean = (args: readonly string[]): readonly string[] => [
      '-i',
      ...Object.entries(env).map(([name, value]) => `${name}=${value}`),
      '/usr/sbin/chroot',
      ...args,
    ]
    const run = (command: readonly string[]) => spawnSync('env', clean(inside(command)), { encoding: 'utf8' })

    t.match(run(JSON.parse(health)), { status: 1, stderr: /no gateway answers on \/data/ }, 'before it runs')
    const { url, child } = await started(t, clean(inside(start)))
    t.match(run(JSON.parse(health)), { status: 0, stdout: /"status":"ready"/, stderr: '' })
    const agent = new Agent({ rejectUnauthorized: false })
    t.match(await ask(`${url}/ready`, 'GET', { agent }), { status: 200, json: { status: 'ready' } })
    agent.destroy()

    const sallyport = (...args: string[]) =>
      run([...words('ENTRYPOINT'), '/app/dist/scripts/sallyport.js', ...args])
    t.match(sallyport('admin-secret'), { status: 0, stdout: /^\S{32}\n$/ }, 'the verbs run in it')
    t.match(sallyport('check-config', '/app/plugins/config'), { status: 0 })
    t.match(run(['/usr/local/bin/node', '-e', "fs.writeFileSync('/app/x', '')"]), {
      status: 1,
      stderr: /EACCES/,
    })
    t.match(run(['/bin/sh', '-c', 'true']).status, 127, 'there is no shell')

    const ended = once(child, 'close')
    child.kill('SIGTERM')
    t.same(await ended, [0, null])
    t.match(sallyport('verify', '/data/sallyport.db'), { status: 0 })
  },
)

async function started(
  t: Test,
  args: readonly string[],
): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const child = spawn('env', args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => child.kill('SIGKILL'))
  for await (const line of createInterface(child.stdout)) {
    const { msg, url } = JSON.parse(line) as { msg: string; url?: string }
    if (msg === 'ready' && url !== undefined) {
      child.stdout.resume()
      return { url, child }
    }
  }
  throw new Error('it ended before it was ready')
}
