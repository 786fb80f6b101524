import { execFileSync, spawnSync } from 'node:child_process'
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
  'profiles',
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

/** What this machine is asked by: agents from anywhere, operators from itself alone. */
const PORTS: Json = { balancer: ['9443:9443'], 'gateway-1': ['127.0.0.1:9444:9444'] }

t.test('two gateways, a database, a balancer, a migration that ends, and Prometheus', async (t) => {
  t.same(
    services.map(([name]) => name),
    ['gateway-1', 'gateway-2', 'migrate', 'database', 'balancer', 'prometheus'],
  )
  const { ports: _, ...first } = compose.services['gateway-1']
  t.same(first, compose.services['gateway-2'])
  t.same(compose.services.prometheus.profiles, ['monitoring'], 'it runs where it is asked for')
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
    t.same(service.ports ?? [], PORTS[name] ?? [], 'from outside only the balancer is reached')
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
  'agents’ port has no administration, and Prometheus finds every gateway on a network of their own',
  async (t) => {
    const prometheus = readYaml(join(DIRECTORY, 'compose/prometheus.yml'))
    const [{ tls_config: tls, authorization, static_configs: targets }] = prometheus.scrape_configs
    for (const [, { environment, networks }] of gateways) {
      const env = Object.fromEntries(
        Object.entries<string>(environment).flatMap(([name, value]) =>
          name.endsWith('_FILE') ? [] : [[name, interpolated(value)]],
        ),
      )
      const settings = readSettings(env, '/app')
      t.match(settings, { adminListen: { port: 9444 }, adminOrigins: ['https://localhost:9444'] })
      t.ok(settings.hostnames.includes(tls.server_name))
      t.ok('metrics' in networks)
    }
    t.notMatch(readFileSync(join(DIRECTORY, 'haproxy.cfg'), 'utf8'), '9444')
    t.same(
      targets[0].targets,
      gateways.map(([name]) => `${name}:9444`),
    )
    const { secrets, networks, volumes } = compose.services.prometheus
    t.same(networks, ['metrics'])
    t.same(compose.networks.metrics, { internal: true })
    const files = secrets.map((secret: Json) => `/run/secrets/${secret.target ?? secret}`)
    for (const file of [tls.ca_file, authorization.credentials_file]) t.ok(files.includes(file), file)
    const mounted = volumes.map((volume: string) => volume.split(':')[1])
    for (const file of prometheus.rule_files) t.ok(mounted.includes(file), file)
    const checked = spawnSync('promtool', [
      'check',
      'config',
      '--syntax-only',
      join(DIRECTORY, 'compose/prometheus.yml'),
    ])
    if (checked.error === undefined) t.equal(checked.status, 0, String(checked.stderr))
  },
)

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
    const all = Object.keys(compose.secrets).filter((name) => name !== 'org_ca')
    const texts = all.map((name) => readFileSync(path(name), 'utf8'))
    t.equal(new Set(texts).size, all.length - 1, 'no two are the same but the token, which two read')
    run()
    t.same(
      all.map((name) => readFileSync(path(name), 'utf8')),
      texts,
      'a second run changes none',
    )
    for (const [name, service] of services) {
      const [uid] = (service.user ?? '').split(':').map(Number)
      for (const secret of (service.secrets ?? []).filter((one: Json) => one !== 'org_ca')) {
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
