import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { networkFileSystemOf } from '../../../db/sqlite/file-system.ts'
import { makeDataDirectory } from '../../../proxy/boot/prepare-directory.ts'
import { refuseUnsafeRuntime } from '../../../proxy/boot/runtime-check.ts'
import { readSettings, SettingsError } from '../../../proxy/boot/settings.ts'

const CWD = '/srv/sallyport'

/** Each environment must be refused with exactly this sentence. */
function refused(t: Tap, cases: readonly (readonly [env: Record<string, string>, message: string])[]): void {
  for (const [env, message] of cases) {
    t.throws(() => readSettings(env, CWD), new SettingsError(message), JSON.stringify(env))
  }
}
type Tap = Pick<typeof t, 'throws'>

await t.test('§8 every setting has its default', async (t) => {
  t.strictSame(readSettings({ HOME: '/root', mcp_proxy_x: '1' }, CWD), {
    listen: { host: '127.0.0.1', port: 9443 },
    adminListen: null,
    people: null,
    adminOrigins: [],
    balancers: null,
    reusePort: false,
    hostnames: ['localhost', '127.0.0.1', '::1'],
    publicUrls: null,
    dataDir: '/srv/sallyport/data',
    secretsDir: '/srv/sallyport/data/mcp-secrets',
    databaseUrl: 'sqlite:/srv/sallyport/data/sallyport.db',
    org: 'acme',
    trustDomain: 'sallyport.local',
    named: { org: false, trustDomain: false },
    adminSecret: null,
    keyPassphrase: null,
    metricsToken: null,
    egressDpopMode: null,
    allowPrivateUpstreams: false,
    allowNetworkDisk: false,
    diskReserveBytes: null,
    federationUrl: null,
    pluginsDir: '/srv/sallyport/plugins/config',
    logLevel: 'info',
    shutdownGraceS: 30,
    drainDelayMs: 0,
    tlsMinVersion: 'TLSv1.3',
    tlsDirect: true,
    heldMib: null,
    heldPerPrincipalMib: null,
  })
})

await t.test('§8 every setting can be set', async (t) => {
  const env = {
    MCP_PROXY_LISTEN: '[::1]:0',
    MCP_PROXY_ADMIN_LISTEN: 'admin.internal:9444',
    MCP_PROXY_PEOPLE_LISTEN: '0.0.0.0:9445',
    MCP_PROXY_PEOPLE_URL: 'https://people.example.com/',
    MCP_PROXY_PEOPLE_TLS_CERT: 'tls/people.crt',
    MCP_PROXY_PEOPLE_TLS_KEY: '/run/people.key',
    MCP_PROXY_ADMIN_ORIGINS: 'https://localhost:9444, https://ops.example.com,http://127.0.0.1:8080',
    MCP_PROXY_PROXY_PROTOCOL: '10.0.0.4, 10.1.0.0/16,2001:DB8:0::/32',
    MCP_PROXY_REUSE_PORT: 'false',
    MCP_PROXY_HOSTNAMES: 'gate.example.com, 10.0.0.1,::1,::1',
    MCP_PROXY_PUBLIC_URLS: 'https://Gate.example.com/, https://other:8443/base/',
    MCP_PROXY_DATA_DIR: 'var',
    MCP_PROXY_SECRETS_DIR: '/run/secrets/mcp',
    MCP_PROXY_DATABASE_URL: 'sqlite:elsewhere/x.db',
    MCP_PROXY_ORG: 'Org_1.x-y',
    MCP_PROXY_TRUST_DOMAIN: 'td.example_1',
    MCP_PROXY_ADMIN_SECRET: 'correct horse',
    MCP_PROXY_KEY_PASSPHRASE: 'battery staple',
    MCP_PROXY_METRICS_TOKEN: 'abcdefghijklmnopqrstuvwx',
    MCP_PROXY_EGRESS_DPOP_MODE: 'required',
    MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true',
    MCP_PROXY_ALLOW_NETWORK_DISK: 'true',
    MCP_PROXY_DISK_RESERVE_MIB: '2',
    MCP_PROXY_FEDERATION_URL: 'https://Hub.example.com/agents?tenant=1',
    MCP_PROXY_PLUGINS_DIR: '/etc/sallyport',
    MCP_PROXY_LOG_LEVEL: 'debug',
    MCP_PROXY_SHUTDOWN_GRACE_S: '0',
    MCP_PROXY_DRAIN_DELAY_MS: '15000',
    MCP_PROXY_TLS_MIN_VERSION: '1.2',
    MCP_PROXY_TLS_DIRECT: 'false',
    MCP_PROXY_HELD_MIB: '64',
    MCP_PROXY_HELD_PER_PRINCIPAL_MIB: '32',
  }
  t.strictSame(readSettings(env, CWD), {
    listen: { host: '::1', port: 0 },
    adminListen: { host: 'admin.internal', port: 9444 },
    people: {
      listen: { host: '0.0.0.0', port: 9445 },
      url: 'https://people.example.com',
      tls: { cert: '/srv/sallyport/tls/people.crt', key: '/run/people.key' },
    },
    adminOrigins: ['https://localhost:9444', 'https://ops.example.com', 'http://127.0.0.1:8080'],
    balancers: ['10.0.0.4/32', '10.1.0.0/16', '2001:db8::/32'],
    reusePort: false,
    hostnames: ['gate.example.com', '10.0.0.1', '::1'],
    publicUrls: ['https://gate.example.com', 'https://other:8443/base'],
    dataDir: '/srv/sallyport/var',
    secretsDir: '/run/secrets/mcp',
    databaseUrl: 'sqlite:/srv/sallyport/elsewhere/x.db',
    org: 'Org_1.x-y',
    trustDomain: 'td.example_1',
    named: { org: true, trustDomain: true },
    adminSecret: 'correct horse',
    keyPassphrase: 'battery staple',
    metricsToken: 'abcdefghijklmnopqrstuvwx',
    egressDpopMode: 'required',
    allowPrivateUpstreams: true,
    allowNetworkDisk: true,
    diskReserveBytes: 2_097_152,
    federationUrl: 'https://hub.example.com/agents?tenant=1',
    pluginsDir: '/etc/sallyport',
    logLevel: 'debug',
    shutdownGraceS: 0,
    drainDelayMs: 15_000,
    tlsMinVersion: 'TLSv1.2',
    tlsDirect: false,
    heldMib: 64,
    heldPerPrincipalMib: 32,
  })
})

await t.test(
  '§8 gateways share a port if they share a PostgreSQL database, and on SQLite none does',
  async (t) => {
    const shared = {
      MCP_PROXY_REUSE_PORT: 'true',
      MCP_PROXY_DATABASE_URL: 'postgres://sallyport@db.example.com/sallyport?sslmode=verify-full',
    }
    t.equal(readSettings(shared, CWD).reusePort, true)
    const onSqlite =
      'MCP_PROXY_REUSE_PORT=true needs PostgreSQL (MCP_PROXY_DATABASE_URL): a SQLite database has one gateway'
    refused(t, [
      [{ MCP_PROXY_REUSE_PORT: 'true' }, onSqlite],
      [{ ...shared, MCP_PROXY_DATABASE_URL: 'sqlite:x.db' }, onSqlite],
      [{ ...shared, MCP_PROXY_REUSE_PORT: 'yes' }, 'MCP_PROXY_REUSE_PORT must be false or true, got "yes"'],
      [
        { ...shared, MCP_PROXY_LISTEN: '127.0.0.1:9443', MCP_PROXY_ADMIN_LISTEN: 'localhost:9443' },
        'MCP_PROXY_REUSE_PORT=true needs different ports in MCP_PROXY_LISTEN and MCP_PROXY_ADMIN_LISTEN',
      ],
      [
        { ...shared, MCP_PROXY_LISTEN: '127.0.0.1:0' },
        'MCP_PROXY_REUSE_PORT=true needs a port in MCP_PROXY_LISTEN: with port 0 each gateway picks its own',
      ],
    ])
  },
)

await t.test('§8 a variable that is set to nothing counts as unset', async (t) => {
  const names = [
    'LISTEN',
    'ADMIN_LISTEN',
    'HOSTNAMES',
    'PUBLIC_URLS',
    'PROXY_PROTOCOL',
    'ADMIN_ORIGINS',
    'ADMIN_SECRET',
    'ADMIN_SECRET_FILE',
    'FEDERATION_URL',
    'REUSE_PORT',
  ]
  const env = Object.fromEntries(names.map((name) => [`MCP_PROXY_${name}`, '']))
  t.strictSame(readSettings(env, CWD), readSettings({}, CWD))
})

await t.test('§8 an unknown MCP_PROXY_ variable stops the boot and names the nearest', async (t) => {
  refused(t, [
    [
      { MCP_PROXY_EGRES_DPOP_MODE: 'required' },
      'MCP_PROXY_EGRES_DPOP_MODE is not a setting: did you mean MCP_PROXY_EGRESS_DPOP_MODE?',
    ],
    [
      { MCP_PROXY_ADMIN_SECRETS: 'canary' },
      'MCP_PROXY_ADMIN_SECRETS is not a setting: did you mean MCP_PROXY_ADMIN_SECRET?',
    ],
    [{ MCP_PROXY_LISTEN_FILE: '' }, 'MCP_PROXY_LISTEN_FILE is not a setting: did you mean MCP_PROXY_LISTEN?'],
  ])
})

await t.test('§8 a setting that is gone stops the boot and says what to do instead', async (t) => {
  const message =
    'MCP_PROXY_WORKERS is no longer a setting: remove it, and for more than one process start several gateways on PostgreSQL with MCP_PROXY_REUSE_PORT=true'
  refused(t, [
    [{ MCP_PROXY_WORKERS: '4' }, message],
    [{ MCP_PROXY_WORKERS: '1' }, message],
    [{ MCP_PROXY_WORKERS: '' }, message],
  ])
})

await t.test('§5 an unknown mode stops the boot, also an empty one', async (t) => {
  refused(t, [
    [
      { MCP_PROXY_EGRESS_DPOP_MODE: 'of' },
      'MCP_PROXY_EGRESS_DPOP_MODE must be off, optional or required, got "of"',
    ],
    [
      { MCP_PROXY_EGRESS_DPOP_MODE: '' },
      'MCP_PROXY_EGRESS_DPOP_MODE must be off, optional or required, got ""',
    ],
    [
      { MCP_PROXY_EGRESS_DPOP_MODE: 'Required' },
      'MCP_PROXY_EGRESS_DPOP_MODE must be off, optional or required, got "Required"',
    ],
  ])
})

await t.test('§8 what cannot be obeyed is refused in one sentence', async (t) => {
  const listen = 'must be host:port, such as 127.0.0.1:9443 or [::1]:9443, got'
  const secrets =
    'MCP_PROXY_SECRETS_DIR must be a directory of its own, apart from the data directory: each file in it may be sent to MCP servers'
  const sqlite =
    'MCP_PROXY_DATABASE_URL must be sqlite: and the path of a file, such as sqlite:data/sallyport.db, or postgres:// with a host and a database'
  const urls = 'MCP_PROXY_PUBLIC_URLS must be https URLs without query, separated by commas, got'
  const networks =
    'MCP_PROXY_PROXY_PROTOCOL must be addresses and networks such as 10.0.0.4 or 10.1.0.0/16, separated by commas, got'
  const origins =
    'MCP_PROXY_ADMIN_ORIGINS must be origins as browsers write them, https or http of this machine, separated by commas, such as https://localhost:9444, got'
  const names = 'MCP_PROXY_HOSTNAMES must be host names and IP addresses, separated by commas, got'
  refused(t, [
    ...['9443', ':9443', '::1:9443', '[::g]:1', '[1.2.3.4]:1', 'a b:1', 'h:65536', 'h:-1', 'h:', 'h:1\n'].map(
      (text) => [{ MCP_PROXY_LISTEN: text }, `MCP_PROXY_LISTEN ${listen} ${JSON.stringify(text)}`] as const,
    ),
    [{ MCP_PROXY_ADMIN_LISTEN: 'x' }, `MCP_PROXY_ADMIN_LISTEN ${listen} "x"`],
    [
      { MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:9443' },
      'MCP_PROXY_ADMIN_LISTEN is the same address as MCP_PROXY_LISTEN: leave it empty to share one listener',
    ],
    ...['', 'lb', '10.0.0.4:80', '10.0.0.0/33', '10.0.0.0/', '10.0.0/8', '10.0.0.0/8/8', '010.0.0.4'].map(
      (text) => [{ MCP_PROXY_PROXY_PROTOCOL: `::1,${text}` }, `${networks} ${JSON.stringify(text)}`] as const,
    ),
    ...['::1/129', 'fe80::1%eth0', '::ffff:10.0.0.4', '*'].map(
      (text) => [{ MCP_PROXY_PROXY_PROTOCOL: text }, `${networks} ${JSON.stringify(text)}`] as const,
    ),
    ...[
      ...['', '*', 'null', 'localhost:9444', 'https://*.example.com', 'https://localhost:9444/'],
      ...['https://localhost:443', 'https://Ops.example.com', 'https://ops.example.com/proxy', 'https://a?x'],
      ...['http://ops.example.com', 'http://127.0.0.1.example.com', 'file:///x', 'blob:https://a/x'],
    ].map(
      (text) =>
        [{ MCP_PROXY_ADMIN_ORIGINS: `https://a,${text}` }, `${origins} ${JSON.stringify(text)}`] as const,
    ),
    [{ MCP_PROXY_ADMIN_ORIGINS: 'https://u:canary@a' }, `${origins} "…@a"`],
    [{ MCP_PROXY_HOSTNAMES: 'a,,b' }, `${names} ""`],
    [{ MCP_PROXY_HOSTNAMES: '*.example.com' }, `${names} "*.example.com"`],
    [{ MCP_PROXY_HOSTNAMES: '1.2.3.400' }, `${names} "1.2.3.400"`],
    [{ MCP_PROXY_PUBLIC_URLS: 'http://x' }, `${urls} "http://x"`],
    [{ MCP_PROXY_PUBLIC_URLS: 'https://x/?' }, `${urls} "https://x/?"`],
    [
      { MCP_PROXY_PUBLIC_URLS: 'https://u:canary@x' },
      'MCP_PROXY_PUBLIC_URLS must not contain a user name or password',
    ],
    [{ MCP_PROXY_DATABASE_URL: 'mysql://u:canary@db/x' }, sqlite],
    [{ MCP_PROXY_DATABASE_URL: 'sqlite::memory:' }, sqlite],
    [{ MCP_PROXY_DATABASE_URL: 'sqlite://data/x.db' }, sqlite],
    [
      { MCP_PROXY_ORG: 'a/b' },
      'MCP_PROXY_ORG must be made of the characters ^[a-zA-Z0-9._-]{1,53}$, got "a/b"',
    ],
    [
      { MCP_PROXY_ORG: 'a\n' },
      'MCP_PROXY_ORG must be made of the characters ^[a-zA-Z0-9._-]{1,53}$, got "a\\n"',
    ],
    [{ MCP_PROXY_ORG: '.' }, 'MCP_PROXY_ORG must not be . or ..: it is a part of each SPIFFE id'],
    [{ MCP_PROXY_ORG: '..' }, 'MCP_PROXY_ORG must not be . or ..: it is a part of each SPIFFE id'],
    ...['data', '.', '/', 'data/ca', '/srv/sallyport/data/mcp-secrets/a', '/proc/self', '/dev'].map(
      (directory) => [{ MCP_PROXY_SECRETS_DIR: directory }, secrets] as const,
    ),
    [
      { MCP_PROXY_TRUST_DOMAIN: 'Acme.com' },
      'MCP_PROXY_TRUST_DOMAIN must be made of the characters ^[a-z0-9._-]{1,255}$, got "Acme.com"',
    ],
    [
      { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'yes' },
      'MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS must be false or true, got "yes"',
    ],
    [
      { MCP_PROXY_LOG_LEVEL: 'loud' },
      'MCP_PROXY_LOG_LEVEL must be fatal, error, warn, info, debug, trace or silent, got "loud"',
    ],
    [
      { MCP_PROXY_SHUTDOWN_GRACE_S: '1e3' },
      'MCP_PROXY_SHUTDOWN_GRACE_S must be a whole number from 0 to 3600, got "1e3"',
    ],
    [{ MCP_PROXY_HELD_MIB: '63' }, 'MCP_PROXY_HELD_MIB must be a whole number from 64 to 1048576, got "63"'],
    [
      { MCP_PROXY_HELD_PER_PRINCIPAL_MIB: '1e2' },
      'MCP_PROXY_HELD_PER_PRINCIPAL_MIB must be a whole number from 32 to 1048576, got "1e2"',
    ],
    [
      { MCP_PROXY_DISK_RESERVE_MIB: '1GiB' },
      'MCP_PROXY_DISK_RESERVE_MIB must be a whole number from 0 to 999999999, got "1GiB"',
    ],
    [
      { MCP_PROXY_SHUTDOWN_GRACE_S: '3601' },
      'MCP_PROXY_SHUTDOWN_GRACE_S must be a whole number from 0 to 3600, got "3601"',
    ],
    [{ MCP_PROXY_TLS_MIN_VERSION: '1.1' }, 'MCP_PROXY_TLS_MIN_VERSION must be 1.3 or 1.2, got "1.1"'],
  ])
})

await t.test('§3 the federation is reached by https, or by http on this machine', async (t) => {
  const read = (text: string) => readSettings({ MCP_PROXY_FEDERATION_URL: text }, CWD).federationUrl
  for (const text of [
    'https://10.0.0.1:8443/x',
    'http://127.0.0.1:1/x',
    'http://[::1]:1/',
    'http://localhost/',
  ]) {
    t.equal(read(text), text)
  }
  t.equal(read('http://127.1/'), 'http://127.0.0.1/')
  const message =
    'MCP_PROXY_FEDERATION_URL must be an https URL, or an http URL of this machine, without user name, password or fragment'
  for (const text of [
    'http://hub.example.com/',
    'http://127.0.0.1.example.com/',
    'http://localhost.example.com/',
    'http://10.0.0.1/',
    'http://[::ffff:10.0.0.1]/',
    'https://u:canary@hub.example.com/',
    'https://canary@hub.example.com/',
    'https://hub.example.com/#x',
    'ftp://127.0.0.1/',
    'hub.example.com',
    ' ',
  ]) {
    t.throws(() => read(text), new SettingsError(message), text)
  }
})

await t.test('§8 every secret may come from a file, without its trailing newline', async (t) => {
  const files = {
    admin: ' secret with spaces \n',
    passphrase: 'two\n\n',
    metrics: `${'m'.repeat(24)}\n`,
    url: 'postgres://gateway:canary@db/sallyport\n',
  }
  const directory = t.testdir(files)
  for (const name of Object.keys(files)) chmodSync(join(directory, name), 0o600)
  const env = {
    MCP_PROXY_ADMIN_SECRET_FILE: 'admin',
    MCP_PROXY_KEY_PASSPHRASE_FILE: join(directory, 'passphrase'),
    MCP_PROXY_METRICS_TOKEN_FILE: 'metrics',
    MCP_PROXY_DATABASE_URL_FILE: 'url',
  }
  const { adminSecret, keyPassphrase, metricsToken, databaseUrl } = readSettings(env, directory)
  t.equal(adminSecret, ' secret with spaces ')
  t.equal(keyPassphrase, 'two\n')
  t.equal(metricsToken, 'm'.repeat(24))
  t.equal(databaseUrl, 'postgres://gateway:canary@db/sallyport')
})

await t.test('a token for metrics that could be guessed is refused and not printed', async (t) => {
  const message =
    'MCP_PROXY_METRICS_TOKEN must be 24 to 256 characters of a bearer token, such as openssl rand -hex 32 prints'
  const texts = [
    'canary',
    'c'.repeat(23),
    'c'.repeat(257),
    `${'c'.repeat(24)} `,
    `${'c'.repeat(24)}\n`,
    'ü'.repeat(24),
  ]
  refused(
    t,
    texts.map((text) => [{ MCP_PROXY_METRICS_TOKEN: text }, message]),
  )
})

await t.test('F-39 a secret file that others may read stops the boot', async (t) => {
  const path = join(t.testdir({ secret: 'canary', empty: '\n' }), 'secret')
  const refuses = (env: Record<string, string>, message: string) => refused(t, [[env, message]])
  for (const mode of [0o604, 0o620, 0o602, 0o660, 0o444]) {
    chmodSync(path, mode)
    const octal = `0${mode.toString(8)}`
    refuses(
      { MCP_PROXY_KEY_PASSPHRASE_FILE: path },
      `MCP_PROXY_KEY_PASSPHRASE_FILE: ${path} has mode ${octal} and is open to others: make it 0600 with chmod 600 ${path}`,
    )
  }
  // 0440: how systemd and Kubernetes hand a secret to a user who does not own it.
  for (const mode of [0o400, 0o440, 0o640]) {
    chmodSync(path, mode)
    t.equal(readSettings({ MCP_PROXY_KEY_PASSPHRASE_FILE: path }, CWD).keyPassphrase, 'canary')
  }
  refuses(
    { MCP_PROXY_ADMIN_SECRET_FILE: path, MCP_PROXY_ADMIN_SECRET: 'canary' },
    'MCP_PROXY_ADMIN_SECRET and MCP_PROXY_ADMIN_SECRET_FILE are both set: keep one',
  )
  refuses(
    { MCP_PROXY_ADMIN_SECRET_FILE: '/gone' },
    'MCP_PROXY_ADMIN_SECRET_FILE: /gone cannot be read (ENOENT)',
  )
  refuses(
    { MCP_PROXY_ADMIN_SECRET_FILE: '/proc' },
    'MCP_PROXY_ADMIN_SECRET_FILE: /proc is not a regular file',
  )
  const empty = join(path, '../empty')
  chmodSync(empty, 0o600)
  refuses({ MCP_PROXY_ADMIN_SECRET_FILE: empty }, `MCP_PROXY_ADMIN_SECRET_FILE: ${empty} is empty`)
})

const runtime = { versions: { node: '24.21.0' }, env: {}, execArgv: [], platform: 'linux', arch: 'x64' }

await t.test('F-39 a Node that is too old is refused', async (t) => {
  for (const node of ['20.20.2', '24.20.9', '22.99.0', '4.30.0']) {
    const needed = `Node 24.21.0 or newer is needed, this is ${node}:`
    const pinned = `${needed} run make start, which takes the pinned one`
    t.throws(() => refuseUnsafeRuntime({ ...runtime, versions: { node } }), { message: pinned })
    const own = `${needed} install it from https://nodejs.org (npm ci brings one for Linux on x64 and arm64 only)`
    for (const elsewhere of [{ platform: 'darwin', arch: 'arm64' }, { arch: 'riscv64' }]) {
      t.throws(() => refuseUnsafeRuntime({ ...runtime, ...elsewhere, versions: { node } }), { message: own })
    }
  }
  for (const node of ['24.21.0', '24.21.1', '24.22.0', '25.0.0', '100.0.0']) {
    t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, versions: { node } }))
  }
  t.doesNotThrow(() => refuseUnsafeRuntime(process), 'the tests themselves run on a Node that may serve')
})

await t.test('threat 36: switches that weaken TLS or the parser are refused', async (t) => {
  const tls = 'NODE_TLS_REJECT_UNAUTHORIZED=0 switches off every certificate check: unset it'
  t.throws(() => refuseUnsafeRuntime({ ...runtime, env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' } }), {
    message: tls,
  })
  t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, env: { NODE_TLS_REJECT_UNAUTHORIZED: '1' } }))
  const parser = '--insecure-http-parser lets requests be smuggled past the gateway: remove it'
  for (const option of ['--insecure-http-parser', '--insecure_http_parser', '--insecure-http-parser=true']) {
    t.throws(() => refuseUnsafeRuntime({ ...runtime, execArgv: ['--no-warnings', option] }), {
      message: parser,
    })
    const env = { NODE_OPTIONS: `--no-warnings "${option}"` }
    t.throws(() => refuseUnsafeRuntime({ ...runtime, env }), { message: parser })
  }
  const safe = { NODE_OPTIONS: '--no-insecure-http-parser --max-old-space-size=256 --no-inspector=--x' }
  t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, env: safe }))
})

await t.test('H17: the environment opens no debugger beside the keys, whatever its spelling', async (t) => {
  const spellings = [
    ...['--inspect', '--inspect-brk', '--inspect-wait', '--inspect-port=0', '--inspect=0.0.0.0:9229'],
    ...['--inspect_brk', '--inspect-publish-uid=http', '--debug-port=9229', '--inspect-brk=127.0.0.1:1'],
  ]
  for (const option of spellings) {
    for (const NODE_OPTIONS of [option, `--no-warnings ${option}`, `"${option}"`, `\t${option} --title=x`]) {
      t.throws(
        () => refuseUnsafeRuntime({ ...runtime, env: { NODE_OPTIONS } }),
        { message: /^--(inspect|debug).* in NODE_OPTIONS opens a debugger/ },
        NODE_OPTIONS,
      )
    }
    t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, execArgv: [option] }), `${option} as an argument`)
  }
  for (const NODE_OPTIONS of ['"--ins\\pect"', '--ins"pect"', '"--inspect\\-brk"', '"\\--inspect=0.0.0.0:1"'])
    t.throws(() => refuseUnsafeRuntime({ ...runtime, env: { NODE_OPTIONS } }), /debugger/, NODE_OPTIONS)
  const parser = { NODE_OPTIONS: '"--insecure\\-http-parser"' }
  t.throws(() => refuseUnsafeRuntime({ ...runtime, env: parser }), /smuggled/)
  for (const NODE_OPTIONS of ['--title=inspect', '--require=./my--inspect.js', '--no-inspect'])
    t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, env: { NODE_OPTIONS } }), NODE_OPTIONS)
})

await t.test('H17: the environment has Node write no keys, memory or environment to files', async (t) => {
  const spellings = [
    ...['--tls-keylog=/tmp/keys', '--tls_keylog=/tmp/keys', '"--tls\\-keylog=/tmp/keys"'],
    ...['--heapsnapshot-signal=SIGUSR2', '--heapsnapshot-near-heap-limit=1'],
    ...['--report-on-signal', '--report-on-fatalerror', '--report-uncaught-exception'],
  ]
  for (const option of spellings) {
    const env = { NODE_OPTIONS: `--no-warnings ${option}` }
    const message = /^--\S+ in NODE_OPTIONS writes keys and secrets to files: remove it/
    t.throws(() => refuseUnsafeRuntime({ ...runtime, env }), { message }, option)
    t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, execArgv: [option] }), `${option} as an argument`)
  }
  const env = {
    NODE_OPTIONS: '--max-old-space-size=256 --report-compact --report-dir=/tmp --title=tls-keylog',
  }
  t.doesNotThrow(() => refuseUnsafeRuntime({ ...runtime, env }))
})

/** Answers as a mount of that type does: no test may mount one. */
const lyingOn = (type: number) => (file: string) => networkFileSystemOf(file, () => Promise.resolve({ type }))

const skip = process.platform === 'linux' ? false : 'skipped: file systems have other numbers here'

await t.test(
  'a SQLite database on a network file system is refused, unless somebody insists',
  { skip },
  async (t) => {
    const directory = t.testdir()
    const settingsOf = (env: Record<string, string>) => readSettings(env, directory)
    const [NFS, EXT4] = [0x69_69, 0xef_53]
    // CIFS has the highest bit: a machine of 32 bits says it as a negative number.
    for (const type of [
      NFS,
      0xff_53_4d_42,
      0xff_53_4d_42 | 0,
      0xfe_53_4d_42,
      0x51_7b,
      0x01_02_19_97,
      0x65_73_55_46,
    ])
      await t.rejects(makeDataDirectory(settingsOf({}), lyingOn(type)), {
        message: /lies on a network file system .*use PostgreSQL.*MCP_PROXY_ALLOW_NETWORK_DISK=true/,
      })
    await t.resolves(makeDataDirectory(settingsOf({}), lyingOn(EXT4)))
    await t.resolves(makeDataDirectory(settingsOf({ MCP_PROXY_ALLOW_NETWORK_DISK: 'true' }), lyingOn(NFS)))
    const postgres = {
      MCP_PROXY_DATABASE_URL: 'postgres://localhost/x',
      MCP_PROXY_KEY_PASSPHRASE: 'battery staple',
    }
    await t.resolves(makeDataDirectory(settingsOf(postgres), lyingOn(NFS)), 'no SQLite')
    t.equal(await networkFileSystemOf(directory), null, 'a disk of this machine')
    t.equal(await networkFileSystemOf('/nowhere/at/all'), null, 'SQLite says that itself')
  },
)

await t.test('the listener for people has a URL and a port of its own, or is closed', (t) => {
  const open = { MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:9445', MCP_PROXY_PEOPLE_URL: 'https://p.example' }
  t.strictSame(readSettings(open, CWD).people, {
    listen: { host: '127.0.0.1', port: 9445 },
    url: 'https://p.example',
    tls: null,
  })
  const origin = 'MCP_PROXY_PEOPLE_URL must be an https origin, such as https://people.example.com'
  refused(t, [
    [
      { MCP_PROXY_PEOPLE_URL: 'https://p.example' },
      'MCP_PROXY_PEOPLE_URL says nothing without MCP_PROXY_PEOPLE_LISTEN: set both or neither',
    ],
    [
      { MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:9445' },
      'MCP_PROXY_PEOPLE_URL is required with MCP_PROXY_PEOPLE_LISTEN',
    ],
    [{ ...open, MCP_PROXY_PEOPLE_URL: 'http://p.example' }, origin],
    [{ ...open, MCP_PROXY_PEOPLE_URL: 'https://p.example/base' }, origin],
    [{ ...open, MCP_PROXY_PEOPLE_URL: 'https://a:b@p.example' }, origin],
    [
      { ...open, MCP_PROXY_PEOPLE_TLS_KEY: '/run/key' },
      'MCP_PROXY_PEOPLE_TLS_CERT and MCP_PROXY_PEOPLE_TLS_KEY belong together: set both or neither',
    ],
    [
      { ...open, MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:9443' },
      'MCP_PROXY_PEOPLE_LISTEN needs a port of its own: another listener has this one',
    ],
  ])
  t.end()
})
