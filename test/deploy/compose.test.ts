import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { readSettings } from '../../proxy/boot/settings.ts'
import { environmentOf, every, only, stagesOf } from '../support/deploy/dockerfile.ts'
import { ROOT } from '../support/deploy/package-tree.ts'
import { interpolated, readYaml } from '../support/deploy/yaml.ts'
import { type Json, scratch } from '../support/gateway.ts'

const DIRECTORY = join(ROOT, 'deploy')
const compose = readYaml(join(DIRECTORY, 'compose.yaml'))
const services: readonly (readonly [string, Json])[] = Object.entries(compose.services)
const gateways = services.filter(([name]) => name.startsWith('gateway-'))
const image = stagesOf(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')).at(-1) ?? []

/** The keys of a service in the compose specification that this file may need. */
const KEYS = [
  'build',
  'cap_drop',
  'command',
  'depends_on',
  'deploy',
  'env_file',
  'environment',
  'healthcheck',
  'image',
  'logging',
  'networks',
  'ports',
  'read_only',
  'restart',
  'secrets',
  'security_opt',
  'shm_size',
  'stop_grace_period',
  'stop_signal',
  'tmpfs',
  'user',
  'volumes',
]

t.test('two gateways, a database, a balancer, and a migration that ends', async (t) => {
  t.same(
    services.map(([name]) => name),
    ['gateway-1', 'gateway-2', 'migrate', 'database', 'balancer'],
  )
  t.same(compose.services['gateway-1'], compose.services['gateway-2'])
})

for (const [name, service] of services) {
  t.test(`${name} is closed: no right, no writing, no more than its share`, async (t) => {
    for (const key of Object.keys(service)) t.ok(KEYS.includes(key), `${key} is no privilege`)
    t.same(service.cap_drop, ['ALL'])
    t.same(service.security_opt, ['no-new-privileges:true'])
    t.equal(service.read_only, true)
    const { cpus, memory, pids } = service.deploy.resources.limits
    t.match([cpus, memory, pids], [/^\d+$/, /^\d+[mg]$/, Number])
    if (name !== 'balancer') t.match(service.user, /^[1-9]\d+:[1-9]\d+$/)
    t.notMatch(JSON.stringify(service.volumes ?? []), 'docker.sock')
    t.same(
      service.ports ?? [],
      name === 'balancer' ? ['9443:9443'] : [],
      'from outside only the balancer is reached',
    )
    if (name !== 'migrate' && name !== 'balancer')
      t.match(service.healthcheck, { test: ['CMD'], retries: Number })
  })

  t.test(`everything that ${name} refers to is there`, async (t) => {
    for (const volume of service.volumes ?? []) {
      const [source] = volume.split(':')
      if (!source.startsWith('.')) t.ok(source in compose.volumes, source)
      else t.ok(existsSync(join(DIRECTORY, source)), source)
    }
    const names = (service.secrets ?? []).map((secret: Json) => secret.source ?? secret)
    for (const secret of names) t.ok(secret in compose.secrets, secret)
    const networks = Array.isArray(service.networks) ? service.networks : Object.keys(service.networks)
    for (const network of networks) t.ok(network in compose.networks, network)
    for (const other of Object.keys(service.depends_on ?? {})) t.ok(other in compose.services, other)
    for (const path of (service.command ?? []).filter((word: string) => word.startsWith('/app/'))) {
      const source = path.replace('/app/dist/', '').replace('/app/', '').replace(/\.js$/, '.ts')
      t.ok(existsSync(join(ROOT, source)), path)
    }
  })
}

const skip = process.getuid?.() === 0 ? false : 'it needs root, to give files away'

/** By haproxy.cfg: a check just passed, and three fail. */
const DETECTED_MS = 2_000 + 2 * 500 + 1_000

t.test('the gateways run as the image does, and end before they are killed', async (t) => {
  for (const [, gateway] of gateways) {
    t.equal(gateway.user, only(image, 'USER'))
    t.match(
      every(image, 'HEALTHCHECK')[0],
      JSON.stringify(gateway.healthcheck.test.slice(1)).replaceAll(',', ', '),
    )
    const { MCP_PROXY_SHUTDOWN_GRACE_S: grace, MCP_PROXY_DRAIN_DELAY_MS: delay } = gateway.environment
    t.ok(Number(delay) >= DETECTED_MS, 'the balancer has seen it')
    t.ok(
      Number.parseInt(gateway.stop_grace_period, 10) >= Number(delay) / 1000 + Number(grace) + 15,
      'the ledger is written behind both',
    )
  }
  const { balancer, migrate, database } = compose.services
  const address = balancer.networks.front.ipv4_address
  t.equal(gateways[0]?.[1].environment.MCP_PROXY_PROXY_PROTOCOL, `${address}/32`)
  const haproxy = readFileSync(join(DIRECTORY, 'haproxy.cfg'), 'utf8')
  const [, host = '', port] = /\$\{SALLYPORT_GATEWAYS-([\w-]+):(\d+)\}/.exec(haproxy) ?? []
  for (const [, gateway] of gateways) t.same(gateway.networks.front.aliases, [host], 'the balancer finds it')
  t.match(environmentOf(image).MCP_PROXY_LISTEN, `:${port}`)
  t.match(haproxy, `bind *:${balancer.ports[0].split(':')[1]}`)
  t.same(compose.networks.back, { internal: true })
  t.same(
    [migrate.networks, database.networks],
    [['back'], ['back']],
    'the database is reached by gateways alone',
  )
})

t.test(
  'secrets.sh makes each secret once, for its one reader, and the settings take them',
  { skip },
  async (t) => {
    const directory = await scratch(t)
    mkdirSync(join(directory, 'compose'))
    cpSync(join(DIRECTORY, 'compose/secrets.sh'), join(directory, 'compose/secrets.sh'))
    const run = (): string =>
      execFileSync('sh', [join(directory, 'compose/secrets.sh')], { encoding: 'utf8', stdio: 'pipe' })
    t.match(run(), /^the secrets are in /)
    const path = (name: string): string => join(directory, compose.secrets[name].file)
    const all = Object.keys(compose.secrets)
    const texts = all.map((name) => readFileSync(path(name), 'utf8'))
    t.equal(new Set(texts).size, all.length, 'no two are the same')
    run()
    t.same(
      all.map((name) => readFileSync(path(name), 'utf8')),
      texts,
      'a second run changes none',
    )
    for (const [name, service] of services) {
      const [uid] = (service.user ?? '').split(':').map(Number)
      for (const secret of service.secrets ?? []) {
        const { mode, uid: owner } = statSync(path(secret.source ?? secret))
        t.same([mode & 0o777, owner], [0o400, uid], `${secret.source ?? secret} of ${name}`)
      }
    }
    for (const [name, service] of services.filter(([, { user }]) => user === only(image, 'USER'))) {
      const env = Object.fromEntries(
        Object.entries<string>(service.environment).map(([variable, value]) => {
          const target = /^\/run\/secrets\/(.*)/.exec(value)?.[1]
          const secret = service.secrets.find((one: Json) => (one.target ?? one) === target)
          return [variable, target === undefined ? interpolated(value) : path(secret.source ?? secret)]
        }),
      )
      const settings = readSettings(env, '/app')
      const role = name === 'migrate' ? 'sallyport_owner' : 'sallyport_gateway'
      t.match(settings.databaseUrl, new RegExp(`^postgres://${role}:[0-9a-f]{64}@database/sallyport$`))
      if (name !== 'migrate')
        t.match(settings, { keyPassphrase: /^[0-9a-f]{64}$/, metricsToken: /^[0-9a-f]{64}$/ })
    }
    t.match(
      execFileSync('git', ['check-ignore', 'deploy/secrets/key_passphrase'], { cwd: ROOT }).toString(),
      'key',
    )
  },
)
