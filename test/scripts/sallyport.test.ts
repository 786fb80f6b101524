import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { VERSION } from '../../proxy/boot/version.ts'
import type { CommandVerb } from '../../scripts/command.ts'
import { run } from '../support/clients/files.ts'
import { identityDirectory } from '../support/clients/identity.ts'
import { testGateway } from '../support/gateway.ts'
import { sallyport } from '../support/run.ts'

const PROGRAM = join(import.meta.dirname, '../../scripts/sallyport.ts')
const VERBS = [
  'start',
  'demo',
  'cluster',
  'check-config',
  'certs',
  'ca-export',
  'certificate',
  'ca',
  'admin-secret',
  'secret',
  'operator',
  'agent',
  'enroll',
  'mcp',
  'providers',
  'costs',
  'prices',
  'stop',
  'stops',
  'approvals',
  'accounts',
  'grants',
  'limits',
  'sets',
  'translate',
  'what-if',
  'rehearse',
  'usage',
  'suggest',
  'connect',
  'renew',
  'env',
  'rotate-signing-key',
  'rotate-passphrase',
  'rotate-audit-key',
  'witness',
  'receipt',
  'evidence',
  'archive',
  'export',
  'tail',
  'verify',
  'verify-audit',
  'health',
  'migrate',
  'copy-database',
  'export-audit',
]

await t.test('--help lists every verb on a line, and each has a help of its own', async (t) => {
  const { code, out, err } = await sallyport(['--help'])
  t.same({ code, err }, { code: 0, err: '' })
  const helps = await Promise.all(VERBS.map((verb) => sallyport([verb, '--help'])))
  for (const [index, verb] of VERBS.entries()) {
    t.match(out, new RegExp(`^  ${verb} +\\S`, 'm'))
    t.match(helps[index], { code: 0, out: /^usage: /, err: '' }, verb)
  }
  t.equal(out.match(/^ {2}[a-z]/gm)?.length, VERBS.length + 1, 'and the last line')
})

await t.test('--version prints the version', async (t) => {
  t.same(await sallyport(['--version']), { code: 0, out: `${VERSION}\n`, err: '' })
})

await t.test('a verb that is not there is refused with exit code 2 and the nearest name', async (t) => {
  const cases = { conect: 'connect', 'verify-adit': 'verify-audit', constructor: '' }
  for (const [typed, meant] of Object.entries(cases)) {
    const { code, out, err } = await sallyport([typed])
    t.same({ code, out }, { code: 2, out: '' })
    t.match(err, new RegExp(`^sallyport: "${typed}" is not a verb: did you mean ${meant}[^\\n]*\\n$`))
  }
  t.match(await sallyport([]), { code: 2, out: '', err: /^usage: sallyport VERB/ })
})

await t.test('a verb gets the arguments after it, and its exit code is the program’s', async (t) => {
  t.match(await sallyport(['check-config', 'plugins/config']), { code: 0, out: /plugins\/config: ok/ })
  t.match(await sallyport(['check-config', 'nowhere']), { code: 1, out: '' })
  t.match(await sallyport(['check-config', 'a', 'b']), { code: 2 })
  t.match(await sallyport(['verify', 'nowhere']), { code: 9 })
  t.match(await sallyport(['connect']), {
    code: 1,
    err: /^sallyport: name the identity: make connect IDENTITY=DIR\n$/,
  })
  t.match(await sallyport(['connect', '--identity', 'x', '--port', '65536']), {
    code: 1,
    err: /--port must be/,
  })
})

/** The exit codes for wrong arguments that a verb's help states; 1 for every other verb. */
const WRONG_ARGUMENTS: Readonly<Record<string, readonly [code: number, stated: RegExp]>> = {
  'check-config': [2, /2 wrong usage/],
  rehearse: [2, /2 wrong arguments/],
  verify: [9, /9 not a ledger, or not readable/],
  'export-audit': [9, /9 if it cannot be read/],
}
/** More that is wrong for one verb: a value, a word that is missing. */
const WRONG_VALUES: Readonly<Record<string, readonly (readonly string[])[]>> = {
  agent: [[]],
  ca: [[], ['no-such-work'], ['attach'], ['trust', 'ab'], ['bundle']],
  cluster: [
    ['--replicas', '0'],
    ['--port', 'x'],
  ],
  connect: [[], ['--identity', 'x', '--port', 'x']],
  'copy-database': [['--to', 'sqlite:x']],
  demo: [['--port', '70000']],
  enroll: [[], ['mint'], ['by-magic', 'bot']],
  env: [['--direct'], ['--port', 'x']],
  evidence: [
    ['--note', 'x'],
    ['--reviewed', '3'],
    ['--since', 'yesterday'],
  ],
  health: [['--timeout', 'soon']],
  mcp: [[], ['show'], ['no-such-work']],
  migrate: [['down']],
  operator: [[], ['add'], ['add', 'a', 'b'], ['grant', 'alice']],
  receipt: [[]],
  rehearse: [['acme::bot'], ['--last', 'long'], ['--set', 'llm.chat'], ['--config', '/nowhere']],
  renew: [[], ['--identity', 'x', '--if-within', 'soon']],
  secret: [[], ['no-such-work']],
  suggest: [[], ['a', 'b'], ['acme::bot', '--last', 'long']],
  usage: [[], ['acme::bot', '--last', 'long']],
  verify: [[], ['--body', 'x', 'y'], ['x', '--key', 'nonsense']],
  witness: [[], ['--name', 'a b']],
}

/** Loads the verbs of every file: one by the name of its file, or several by their own. */
async function loadedVerbs(): Promise<ReadonlyMap<string, CommandVerb>> {
  const directory = join(import.meta.dirname, '../../scripts/verbs')
  const all = readdirSync(directory).map(async (file): Promise<[string, CommandVerb][]> => {
    const { verb, verbs = { [basename(file, '.ts')]: verb } } = await import(join(directory, file))
    return Object.entries(verbs)
  })
  return new Map((await Promise.all(all)).flat())
}

await t.test('a verb with wrong arguments says so, and exits as its help says', async (t) => {
  for (const args of [['--acept-rollback', 'x'], ['--accept-rollback'], ['--accept-rollback', ' '], ['now']])
    t.match(
      await sallyport(['start', ...args]),
      { code: 1, out: '', err: /^sallyport: \S.*\n$/ },
      args.join(' '),
    )
  const loaded = await loadedVerbs()
  for (const name of VERBS.filter((verb) => verb !== 'start' && verb !== 'verify-audit')) {
    const verb = loaded.get(name)
    if (!verb) throw new Error(`no file has ${name}`)
    const [code, stated] = WRONG_ARGUMENTS[name] ?? [1, /^usage: /]
    t.match(verb.help, stated, name)
    for (const args of [['--no-such-option'], ['--help=no'], ...(WRONG_VALUES[name] ?? [['a', 'b', 'c']])]) {
      const told = t.capture(process.stderr, 'write', () => true)
      const exited = await verb.run(args)
      told.restore()
      const said = told()
        .map(({ args: [text] }) => String(text))
        .join('')
      t.equal(exited, code, `${name} ${args.join(' ')}: ${said}`)
      t.match(said, /^(?:sallyport|check-config|verify|export-audit): \S/, 'one sentence')
    }
  }
})

await t.test('connect says where it listens, serves, and ends in order at SIGTERM', async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  const args = [PROGRAM, 'connect', '--identity', directory, '--port', '0']
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  t.teardown(() => child.kill('SIGKILL'))
  const [line] = await once(createInterface(child.stdout), 'line')
  const ready = JSON.parse(line)
  t.match(ready, {
    msg: 'ready',
    url: /^http:\/\/127\.0\.0\.1:\d+$/,
    gateway: gateway.url,
    agent_id: 'acme::bot',
  })
  const answer = await fetch(`${ready.url}/v1/models`)
  t.equal(answer.status, 200)
  t.match(await answer.json(), { object: 'list' })
  const ended = once(child, 'close')
  child.kill('SIGTERM')
  t.same(await ended, [0, null])
})

await t.test('connect refuses to listen where others could reach it', async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  const ran = await sallyport(['connect', '--identity', directory, '--host', '0.0.0.0', '--port', '0'])
  t.match(ran, {
    code: 1,
    out: '',
    err: /^sallyport: the sidecar .* listens on loopback only, not on 0\.0\.0\.0\n$/,
  })
})

await t.test('connect on a taken port says which word takes another one', async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  const { port } = new URL(gateway.url)
  const ran = await sallyport(['connect', '--identity', directory, '--port', port])
  const sentence = `sallyport: another process listens on 127.0.0.1:${port}: take another port, e.g. PORT=`
  t.match(ran, { code: 1, out: '' })
  t.match(ran.err, sentence)
})

// All that env reads of an identity.
const GATEWAY_URL = 'https://gate.example:9443'
const GATEWAY_FILE = { 'gateway.json': JSON.stringify({ url: GATEWAY_URL }) }

await t.test('env prints lines that a shell takes as they are', async (t) => {
  const directory = t.testdir(GATEWAY_FILE)
  const plain = await sallyport(['env', '--port', '9999'])
  t.match(plain, { code: 0, err: '', out: /^export OPENAI_BASE_URL=http:\/\/127\.0\.0\.1:9999\/v1 /m })
  t.match(plain.out, /^export ANTHROPIC_BASE_URL=http:\/\/127\.0\.0\.1:9999 /m)
  t.match(plain.out, /^# {3}wire_api = "responses"$/m)
  const direct = await sallyport(['env', '--identity', directory, '--direct'])
  t.match(direct.out, new RegExp(`^export CLAUDE_CODE_CLIENT_CERT=${directory}/agent\\.crt$`, 'm'))
  t.match(direct.out, new RegExp(`^export ANTHROPIC_BASE_URL=${GATEWAY_URL}$`, 'm'))
  t.notMatch(direct.out, /^export .*127\.0\.0\.1:8787/m)
  t.match(await sallyport(['env', '--direct']), { code: 1, err: /--direct needs the certificate/ })
})

/** Runs what env prints in a shell with these variables, twice, and returns the shell's variables then. */
async function sourced(lines: string, variables: Readonly<Record<string, string>>, shell = 'sh') {
  const env = ['-i', `PATH=${process.env.PATH}`, ...Object.entries(variables).map((one) => one.join('='))]
  const script = ['set -eu', lines, lines, 'env -0'].join('\n')
  const { out, err, code } = await run('env', [...env, shell, '-c', script])
  if (code !== 0) throw new Error(err)
  return Object.fromEntries(out.split('\0').map((line) => line.split(/=(.*)/s, 2)))
}

await t.test(
  'calls of this machine stay on it, whatever the shell that takes the lines has set',
  async (t) => {
    const directory = t.testdir({ ...GATEWAY_FILE, 'org-ca.crt': 'OURS', corporate: 'THEIRS' })
    const { out: lines } = await sallyport(['env', '--identity', directory])
    const { out: direct } = await sallyport(['env', '--identity', directory, '--direct'])
    const local = 'localhost,127.0.0.1,::1'
    const proxied = { HTTP_PROXY: 'http://p:1', HTTPS_PROXY: 'http://p:1', all_proxy: 'http://p:1' }
    for (const [given, expected] of [
      [{}, local],
      [{ NO_PROXY: '.corp' }, `${local},.corp`],
      [{ no_proxy: '.corp' }, `${local},.corp`],
      [{ no_proxy: 'a', NO_PROXY: 'b' }, `${local},a,b`],
      [{ NO_PROXY: '*' }, '*'],
      [{ no_proxy: local, NO_PROXY: 'b' }, `${local},${local},b`],
      [{ no_proxy: `${local},c`, NO_PROXY: `${local},c` }, `${local},c`],
    ] as const) {
      for (const shell of ['sh', 'bash']) {
        const found = await sourced(lines, { ...proxied, ...given }, shell)
        t.match(found, { ...proxied, no_proxy: expected, NO_PROXY: expected }, JSON.stringify(given))
      }
    }
    const elsewhere = {
      OPENAI_API_BASE: 'https://api.example/v1',
      OPENAI_API_TYPE: 'azure',
      ANTHROPIC_AUTH_TOKEN: 'sk-mine',
      CLAUDE_CODE_USE_BEDROCK: '1',
      CLAUDE_CODE_USE_VERTEX: '1',
    }
    const found = await sourced(lines, elsewhere)
    t.match(found, {
      OPENAI_BASE_URL: 'http://127.0.0.1:8787/v1',
      OPENAI_API_BASE: 'http://127.0.0.1:8787/v1',
      ANTHROPIC_BASE_URL: 'http://127.0.0.1:8787',
    })
    for (const name of Object.keys(elsewhere).slice(1)) t.notOk(name in found, name)
    const [ca, both] = [join(directory, 'org-ca.crt'), join(directory, 'extra-ca.pem')]
    t.equal((await sourced(direct, {})).NODE_EXTRA_CA_CERTS, ca)
    const trusting = await sourced(direct, { NODE_EXTRA_CA_CERTS: join(directory, 'corporate') })
    t.equal(trusting.NODE_EXTRA_CA_CERTS, both)
    t.equal(await readFile(both, 'utf8'), 'THEIRS\nOURS', 'both are trusted')
  },
)

await t.test('what is printed names commands that a checkout has, and no bare sallyport', async (t) => {
  const directory = t.testdir(GATEWAY_FILE)
  const said = await Promise.all([
    sallyport(['env', '--identity', directory, '--port', '9999']),
    sallyport(['env', '--help']),
    sallyport(['connect', '--help']),
    sallyport(['mcp', '--help']),
    sallyport(['mcp', 'show']),
    sallyport(['agent', '']),
  ])
  for (const { out, err } of said) {
    t.notMatch(
      (out + err).replace(/^usage: .*$/m, ''),
      new RegExp(`(?<![:\\w/] ?)\\bsallyport (${VERBS.join('|')})\\b`),
    )
  }
  const [{ out: lines }] = said
  const sidecar = /^# through the sidecar: make (.*)$/m.exec(lines)?.[1] ?? ''
  t.equal(sidecar, `connect IDENTITY=${directory} PORT=9999`)
  // That such a program then speaks as the agent: test/scripts/client/register.test.ts.
  const preloaded = /^# {3}# (node --import \S+) app\.mjs /m.exec(lines)?.[1] ?? ''
  const loaded = spawnSync('sh', ['-c', `${preloaded} -e ''`], {
    env: { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, SALLYPORT_IDENTITY: directory },
    encoding: 'utf8',
  })
  t.match(loaded.stderr, 'it has no agent.key', 'the preloaded file is there')
})

await t.test('env quotes what a shell would take apart', async (t) => {
  const parent = t.testdir({ "it's $(touch x)": GATEWAY_FILE })
  const directory = join(parent, "it's $(touch x)")
  const { out } = await sallyport(['env', '--identity', directory, '--direct'])
  const shell = spawn('sh', ['-c', `${out}\nprintf %s "$SALLYPORT_IDENTITY"`])
  const [said] = await once(shell.stdout, 'data')
  t.equal(String(said), directory)
})
