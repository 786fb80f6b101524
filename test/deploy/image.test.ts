import { type ChildProcess, execFileSync, type SpawnOptions, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { Agent } from 'node:https'
import { dirname, extname, join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { openZip } from '../../scripts/verifying/zip.ts'
import { ANOTHER_USER, mayBeOthers } from '../support/another-user.ts'
import { without } from '../support/certs/openssl.ts'
import { copiesOf, environmentOf, every, only, stagesOf } from '../support/deploy/dockerfile.ts'
import { compileInto, layModules, layProgram, ROOT } from '../support/deploy/package-tree.ts'
import { ask, scratch } from '../support/gateway.ts'
import { eventually } from '../support/settled.ts'
import { withoutPython } from '../support/verifiers.ts'

t.setTimeout(240_000)

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
  const digest = '@sha256:[0-9a-f]{64}'
  const [node, base] = every(globals, 'ARG')
  t.match(node, new RegExp(`^NODE_IMAGE=node:24\\.\\d+\\.\\d+-\\S+-slim${digest}$`))
  t.match(base, new RegExp(`^BASE_IMAGE=\\S+:nonroot${digest}$`))
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
      'docs/verify.py',
      'LICENSE',
      '/data',
      '/archive',
    ])
    const owned = copiesOf(image).filter(({ owner }) => owner !== null)
    t.same(
      owned.map(({ target }) => target),
      ['/data', '/var/lib/sallyport/archive'],
      'the user owns no program',
    )
    const sources = every(build, 'COPY').flatMap((rest) => rest.split(' ').slice(0, -1))
    for (const path of [...sources, 'deploy/postgres', 'docs/verify.py', 'LICENSE']) {
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

let made: Promise<string> | null = null

/** What `npm run build` makes, once for all trees. */
const compiled = (): Promise<string> => {
  made ??= scratch(t).then((root) => {
    compileInto(join(root, 'dist'))
    return join(root, 'dist')
  })
  return made
}

/** What every pack holds beside its checkpoints and tiles. */
const PACK = [
  ...['README.md', 'SHA256SUMS', 'anchors/anchors.json', 'grants.ndjson', 'inventory.json', 'key.txt'],
  ...['refusals.csv', 'rows.csv', 'rows.ndjson', 'sets-end.json', 'sets-start.json', 'sign-ins.ndjson'],
  'state-end.json',
  ...['tools.json', 'verify.mjs', 'verify.py'],
]

/** Looks at what is in a pack, and has it verified by both verifiers in it, in a directory with nothing else. */
async function judged(t: Test, pack: string): Promise<void> {
  const zip = await openZip(pack)
  t.teardown(() => zip.close())
  const names = zip.names.filter((name) => !/^(?:checkpoints|tiles)\//.test(name))
  t.same(names.toSorted(), PACK)
  const directory = await scratch(t)
  for (const name of ['verify.mjs', 'verify.py', 'key.txt'])
    writeFileSync(join(directory, name), await zip.bytes(name, 2 ** 21))
  const key = readFileSync(join(directory, 'key.txt'), 'utf8').trim()
  for (const [program, file] of [
    [process.execPath, 'verify.mjs'],
    ...(withoutPython ? [] : [['python3', 'verify.py'] as const]),
  ] as const)
    t.match(
      spawnSync(program, [file, pack, '--key', key], {
        cwd: directory,
        encoding: 'utf8',
        env: { PATH: process.env.PATH },
      }),
      { status: 0, stdout: /VERIFIED/, stderr: '' },
      file,
    )
}

/** Builds the image's files below a directory, as the stages of the Dockerfile do. Returns the directory and the user. */
async function built(t: Test): Promise<{ readonly rootfs: string; readonly user: string }> {
  const rootfs = join(await scratch(t), 'rootfs')
  const [uid = 0, gid = 0] = only(image, 'USER').split(':').map(Number)
  const node = only(image, 'WORKDIR')
  mkdirSync(join(rootfs, node), { recursive: true })
  for (const { source, target, owner } of copiesOf(image)) {
    const to = join(rootfs, resolve(node, target))
    if (source === '/src/dist') cpSync(await compiled(), to, { recursive: true })
    else if (source === '/src/node_modules') layModules(join(rootfs, node), /^node_modules\/node-linux-/)
    else if (owner !== null) {
      mkdirSync(dirname(to), { recursive: true })
      mkdirSync(to, { mode: 0o700 })
    } else if (source !== '/usr/local/bin/gateway-node')
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
      'docs',
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
    const { url, child, said } = await started(t, clean(inside(start)))
    const next = /node (\/app\/dist\/scripts\/sallyport\.js) admin-secret/
    const [, named = ''] = next.exec(await eventually(said, (text) => next.test(text))) ?? []
    t.ok(named !== '' && existsSync(join(rootfs, named)), 'what it says to run is there')
    t.match(run(JSON.parse(health)), { status: 0, stdout: /"status":"ready"/, stderr: '' })
    const agent = new Agent({ rejectUnauthorized: false })
    t.match(await ask(`${url}/ready`, 'GET', { agent }), { status: 200, json: { status: 'ready' } })
    agent.destroy()

    const sallyport = (...args: string[]) =>
      run([...words('ENTRYPOINT'), '/app/dist/scripts/sallyport.js', ...args])
    t.match(sallyport('admin-secret'), { status: 0, stdout: /^\S{32}\n$/ }, 'the verbs run in it')
    t.match(sallyport('check-config', '/app/plugins/config'), { status: 0 })
    const evidence = () => sallyport('evidence', '--out', '/data/pack.zip')
    t.match(await eventually(evidence, ({ status }) => status === 0), { stdout: /wrote/ })
    await judged(t, join(rootfs, 'data/pack.zip'))
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

/** A clone of this commit with what has changed since, without tests, in a folder that others can read. */
async function cloned(t: Test): Promise<string> {
  const root = await scratch(t)
  chmodSync(root, 0o755)
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', ':!test'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  for (const file of files
    .trim()
    .split('\n')
    .filter((file) => existsSync(join(ROOT, file)))) {
    mkdirSync(dirname(join(root, file)), { recursive: true })
    copyFileSync(join(ROOT, file), join(root, file))
  }
  return root
}

/**
 * Starts what is installed in `tree` as another user, in a bare directory or where its unit says, has it make a pack of
 * evidence, and judges that. Returns the function that runs a verb.
 */
async function packsAsAnotherUser(t: Test, tree: string, main: string, cwd?: string) {
  const home = await scratch(t)
  for (const folder of [home, join(home, 'data')]) {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    chownSync(folder, ANOTHER_USER, ANOTHER_USER)
  }
  const options: SpawnOptions & { encoding: 'utf8' } = {
    ...{ uid: ANOTHER_USER, gid: ANOTHER_USER, cwd: cwd ?? home, encoding: 'utf8' },
    env: {
      ...{ MCP_PROXY_DATA_DIR: join(home, 'data'), MCP_PROXY_LISTEN: '127.0.0.1:0', HOME: home },
      ...(cwd === undefined && { MCP_PROXY_PLUGINS_DIR: join(tree, 'plugins/config') }),
    },
  }
  const scripts = join(tree, main, '../../scripts')
  const ending = extname(main)
  await startedBy(t, process.execPath, [...start.slice(1, -1), join(tree, main)], options)
  const run = (...args: readonly string[]) => spawnSync(process.execPath, args, options)
  const verb = (...args: readonly string[]) => run(join(scripts, `sallyport${ending}`), ...args)
  const pack = join(home, 'pack.zip')
  t.match(
    await eventually(
      () => verb('evidence', '--out', pack),
      ({ status }) => status === 0,
    ),
    { stdout: /wrote/ },
  )
  await judged(t, pack)
  const loading = `for (const file of fs.globSync('*${ending}', { cwd: '${scripts}/verbs' })) await import('${scripts}/verbs/' + file)`
  t.match(run('--input-type=module', '-e', loading.replace('for', "import fs from 'node:fs'; for")), {
    status: 0,
    stderr: '',
  })
  return verb
}

const skipOthers = mayBeOthers ? without('npm') || without('git') : 'it needs root, to start as another user'

t.test(
  'the packed package runs from a bare directory, and makes whole packs',
  { skip: skipOthers },
  async (t) => {
    const tree = await cloned(t)
    cpSync(await compiled(), join(tree, 'dist'), { recursive: true })
    const packing = ['-i', `PATH=${process.env.PATH}`, 'npm', 'pack', '--silent', '--ignore-scripts']
    const tarball = execFileSync('env', packing, { cwd: tree, encoding: 'utf8' }).trim()
    const installed = await scratch(t)
    chmodSync(installed, 0o755)
    execFileSync('tar', ['xf', join(tree, tarball), '--no-same-owner'], { cwd: installed })
    layModules(join(installed, 'package'), /^node_modules\/node-linux-/)
    await packsAsAnotherUser(t, join(installed, 'package'), 'dist/proxy/main.js')
  },
)

t.test(
  'an install by systemd’s recipe makes whole packs, and says so where it cannot',
  { skip: skipOthers },
  async (t) => {
    const [, recipe = ''] = /^## systemd\n\n```sh\n([\s\S]*?)```/m.exec(read('docs/deploying.md')) ?? []
    t.match(recipe, /sudo make verifier && sudo npm prune --omit=dev /m)
    const tree = await cloned(t)
    layModules(tree, /^node_modules\/node-linux-/)
    mkdirSync(join(tree, 'dist'))
    copyFileSync(join(await compiled(), 'verify.mjs'), join(tree, 'dist/verify.mjs'))
    const verb = await packsAsAnotherUser(t, tree, 'proxy/main.ts', tree)
    rmSync(join(tree, 'dist/verify.mjs'))
    t.match(verb('evidence', '--out', join(tree, 'other.zip')), {
      status: 1,
      stderr: /cannot read dist\/verify\.mjs/,
    })
  },
)

const started = (t: Test, args: readonly string[]) => startedBy(t, 'env', args)

async function startedBy(
  t: Test,
  program: string,
  args: readonly string[],
  options: SpawnOptions = {},
): Promise<{ readonly url: string; readonly child: ChildProcess; readonly said: () => string }> {
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  t.teardown(() => child.kill('SIGKILL'))
  let said = ''
  child.stderr.on('data', (text: Buffer) => {
    said += text.toString()
  })
  for await (const line of createInterface(child.stdout)) {
    const { msg, url } = JSON.parse(line) as { msg: string; url?: string }
    if (msg === 'ready' && url !== undefined) {
      child.stdout.resume()
      return { url, child, said: () => said }
    }
  }
  throw new Error(`it ended before it was ready: ${said}`)
}
