import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { readSettings } from '../../proxy/boot/settings.ts'
import { without } from '../support/certs/openssl.ts'
import { at, CHART, overlaid, settingsOfChart } from '../support/deploy/chart.ts'
import { only, stagesOf } from '../support/deploy/dockerfile.ts'
import { ROOT } from '../support/deploy/package-tree.ts'
import { documentsOf, readYaml } from '../support/deploy/yaml.ts'
import { ADMIN_SECRET, type Json, testGateway } from '../support/gateway.ts'
import { openChromium, skipWithoutChromium } from '../support/oidc/chromium.ts'

const templates = readdirSync(join(CHART, 'templates')).map(
  (file) => [file, readFileSync(join(CHART, 'templates', file), 'utf8')] as const,
)
const values = readYaml(join(CHART, 'values.yaml'))
const schema = JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8'))
const image = stagesOf(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')).at(-1) ?? []

/** What an operator must say. */
const REQUIRED = {
  hostnames: ['gate.example.com'],
  publicUrls: ['https://gate.example.com'],
  secret: { existingSecret: 'sallyport' },
  migrate: { existingSecret: 'sallyport-owner' },
}

const SECRET_KEY = { secretKeyRef: { name: 'files', key: 'token' } }
/** A client certificate for the database. */
const CLIENT = {
  extraVolumes: [{ name: 'client', secret: { secretName: 'database-client', defaultMode: 0o440 } }],
  extraVolumeMounts: [{ name: 'client', mountPath: '/run/database-client', readOnly: true }],
}

/** The paths of all values that are no objects, or empty ones. */
const leavesOf = (object: Json, path: readonly string[] = []): readonly string[] =>
  Object.entries(object).flatMap(([key, value]) =>
    value !== null && typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length > 0
      ? leavesOf(value, [...path, key])
      : [[...path, key].join('.')],
  )

t.test('every value that a template uses is in values.yaml, and every value is used', async (t) => {
  const used = new Set<string>()
  for (const [file, text] of templates) {
    for (const [, path = ''] of text.matchAll(/\.Values\.([\w.]+)/g)) {
      used.add(path)
      t.not(at(values, path), undefined, `${file}: ${path}`)
    }
  }
  const monitor = templates.find(([file]) => file === 'servicemonitor.yaml')?.[1] ?? ''
  for (const leaf of leavesOf(values)) {
    const within = [...used].some((path) => leaf === path || leaf.startsWith(`${path}.`))
    t.ok(within, leaf)
    const [, key] = /^monitoring\.serviceMonitor\.(\w+)$/.exec(leaf) ?? []
    if (key !== undefined) t.match(monitor, `.${key}`, leaf)
  }
})

t.test('the schema knows every value, and refuses what cannot work', async (t) => {
  const ajv = new Ajv({ strictTypes: false, strictRequired: false, allowUnionTypes: true })
  const valid = ajv.compile(schema)
  const full = overlaid(values, REQUIRED)
  t.ok(valid(full), JSON.stringify(valid.errors))
  t.notOk(valid(values), 'host names, URLs and secrets are the operator’s to say')
  const refused: readonly Json[] = [
    { replica: 3 },
    { replicas: 0 },
    { secret: { existingSecret: '' } },
    { secret: { passphrase: 'canary' } },
    { migrate: { existingSecret: '' } },
    { publicUrls: ['http://gate.example.com'] },
    { settings: { MCP_PROXY_KEY_PASSPHRASE: 'canary' } },
    { settings: { MCP_PROXY_ADMIN_SECRET: 'canary' } },
    { settings: { MCP_PROXY_DATABASE_URL: 'postgres://u:canary@h/d' } },
    { admin: { port: 9443 } },
    ...['*', 'https://*', 'https://ops.example.com/', 'https://u@ops.example.com', 'a'].map((origin) => ({
      admin: { origins: [origin] },
    })),
    { monitoring: { serviceMonitor: { enabled: true } } },
    { image: { digest: 'latest' } },
    { caBundle: { existingConfigMap: 'not/a/name' } },
    { caBundle: { pem: 'canary' } },
    { archive: { existingClaim: 'not/a/name' } },
    { archive: { hostPath: '/' } },
    { extraVolumes: [{ name: 'archive', emptyDir: {} }] },
    { extraEnv: [{ name: 'OPENAI_API_KEY', value: 'canary' }] },
    { extraEnv: [{ name: 'MCP_SECRET_FILES', value: 'canary' }] },
    { extraEnv: [{ name: 'MCP_PROXY_DATABASE_URL', valueFrom: SECRET_KEY }] },
    { extraEnv: [{ name: 'MCP_PROXY_KEY_PASSPHRASE_FILE', value: '/elsewhere' }] },
    { extraEnv: [{ name: 'PGSSLMODE' }] },
    { extraEnv: { PGSSLMODE: 'verify-full' } },
    { extraVolumes: [{ name: 'host', hostPath: { path: '/' } }] },
    { extraVolumes: [{ name: 'secret', secret: { secretName: 'other' } }] },
    { extraVolumes: [{ name: 'nothing' }] },
    { extraVolumeMounts: [{ name: 'client', mountPath: 'relative' }] },
    { migrate: { extraEnv: [{ name: 'DB_PASSWORD', value: 'canary' }] } },
  ]
  for (const one of refused) t.notOk(valid(overlaid(full, one)), JSON.stringify(one))
  const taken: readonly Json[] = [
    { settings: { MCP_PROXY_LOG_LEVEL: 'debug' } },
    { admin: { port: 9500, origins: ['https://localhost:9500', 'https://ops.example.com'] } },
    { migrate: { enabled: false, existingSecret: '' } },
    { monitoring: { serviceMonitor: { enabled: true, caConfigMap: 'ca' } } },
    { image: { digest: `sha256:${'0'.repeat(64)}` } },
    { caBundle: { existingConfigMap: 'company-cas', key: 'trust-bundle.pem' } },
    { extraEnv: [{ name: 'PGSSLMODE', value: 'verify-full' }] },
    { extraEnv: [{ name: 'MCP_SECRET_FILES', valueFrom: SECRET_KEY }], ...CLIENT },
    { migrate: CLIENT },
    { archive: { existingClaim: 'sallyport-archive' } },
  ]
  for (const one of taken) t.ok(valid(overlaid(full, one)), JSON.stringify(one))
})

t.test('the templates set what the gateway knows, and hold no secret', async (t) => {
  const all = templates.map(([, text]) => text).join('\n')
  const names = new Set([...all.matchAll(/name: (MCP_PROXY_\w+)/g)].map(([, name = '']) => name))
  t.ok(names.size > 10)
  for (const name of names) {
    t.doesNotThrow(() => readSettings({ [name]: '' }, '/'), name)
  }
  t.notMatch(all, /kind: Secret\b/)
  t.notMatch(all, /MCP_PROXY_(KEY_PASSPHRASE|ADMIN_SECRET|METRICS_TOKEN|DATABASE_URL)$/m, 'by file alone')
  for (const [, path = ''] of all.matchAll(/\/app\/(\S+?)[,\]]/g)) {
    const source = path.replace(/^dist\//, '').replace(/\.js$/, '.ts')
    t.doesNotThrow(() => readFileSync(join(ROOT, source)), path)
  }
})

t.test('whatever is deployed has the folder of the archive, and none archives by itself', async (t) => {
  const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
  const [, folder = 'none'] = /^to: (\S+)/m.exec(read('docs/operating.md')) ?? []
  t.ok(templates.some(([, text]) => text.includes(`mountPath: ${folder}\n`)))
  t.equal(values.archive.existingClaim, '')
  t.ok(read('Dockerfile').includes(`--chown=65532:65532 /archive ${folder}\n`))
  t.ok(read('deploy/compose.yaml').includes(`volumes: ["archive:${folder}"]`))
  for (const unit of ['sallyport', 'sallyport@'])
    t.match(read(`deploy/systemd/${unit}.service`), /^StateDirectory=.* sallyport\/archive$/m, unit)
  t.equal(folder, '/var/lib/sallyport/archive')
  t.notOk(existsSync(join(ROOT, 'plugins/config/90-archive.yaml')))
})

const skip = without('helm')

/** Renders the chart. Throws what helm says where it refuses. */
function rendered(more: Json): readonly Json[] {
  const args = ['template', 'gate', CHART, '--namespace', 'sallyport', '--kube-version', '1.31.0', '-f', '-']
  const input = JSON.stringify(overlaid(REQUIRED, more))
  const { status, stdout, stderr } = spawnSync('helm', args, { input, encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
  return documentsOf(stdout)
}

t.test('every pod is of the restricted profile, and reads its secrets from files', { skip }, async (t) => {
  const pods = rendered({ settings: { MCP_PROXY_LOG_LEVEL: 'warn' } })
    .filter(({ kind }) => kind === 'Deployment' || kind === 'Job')
    .map(({ spec }) => spec.template.spec)
  t.equal(pods.length, 2)
  const [uid] = only(image, 'USER').split(':').map(Number)
  for (const pod of pods) {
    t.match(pod.securityContext, {
      runAsNonRoot: true,
      runAsUser: uid,
      fsGroup: uid,
      seccompProfile: { type: 'RuntimeDefault' },
    })
    t.equal(pod.automountServiceAccountToken, false)
    t.notMatch(Object.keys(pod).join(), /host(Network|PID|IPC)/)
    const [container, ...others] = pod.containers
    t.same(others, [])
    t.same(container.securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
    t.ok(container.resources.limits.memory && container.resources.requests.cpu)
    for (const volume of pod.volumes) {
      t.match(Object.keys(volume).toSorted().join(), /^(configMap|emptyDir)?,?name(,secret)?$/)
      if (volume.secret) t.equal(volume.secret.defaultMode, 0o440)
    }
    // As the pod will be started, but for the files.
    const env = Object.fromEntries(container.env.map(({ name, value }: Json) => [name, value]))
    const known = Object.fromEntries(Object.entries<string>(env).filter(([name]) => !name.endsWith('_FILE')))
    t.equal(readSettings(known, '/app').dataDir.startsWith('/data/'), true)
    if (container.name === 'gateway') t.match(env, settingsOfChart(REQUIRED), 'as it is read without helm')
  }
})

t.test('the parts select each other, and monitoring gets a token only', { skip }, async (t) => {
  const documents = rendered({
    service: { type: 'LoadBalancer', proxyProtocolFrom: ['10.0.0.0/24'] },
    monitoring: { serviceMonitor: { enabled: true, caConfigMap: 'ca' } },
    autoscaling: { enabled: true },
    networkPolicy: { adminFrom: [{ namespaceSelector: {} }] },
  })
  const of = (kind: string, name = 'gate-sallyport'): Json => {
    const [found, ...more] = documents.filter((one) => one.kind === kind && one.metadata.name === name)
    t.ok(found && more.length === 0, `${kind} ${name}`)
    return found?.spec
  }
  const deployment = of('Deployment')
  const { labels } = deployment.template.metadata
  const selectors = [
    deployment.selector.matchLabels,
    of('Service').selector,
    of('Service', 'gate-sallyport-admin').selector,
    of('PodDisruptionBudget').selector.matchLabels,
    of('NetworkPolicy').podSelector.matchLabels,
    ...deployment.template.spec.topologySpreadConstraints.map((one: Json) => one.labelSelector.matchLabels),
  ]
  for (const selector of selectors) t.same({ ...labels, ...selector }, labels)
  const job = documents.find(({ kind }) => kind === 'Job')
  t.notMatch(job?.spec.template.metadata.labels, selectors[0], 'a migration gets no call')
  t.equal(deployment.replicas, undefined, 'the autoscaler says how many')
  t.equal(deployment.template.spec.terminationGracePeriodSeconds, 15 + 30 + 15)
  t.equal(of('Service', 'gate-sallyport-admin').type, 'ClusterIP')
  const admin = documents.find(({ metadata }) => metadata.name === 'gate-sallyport-admin')
  const monitor = of('ServiceMonitor')
  t.match(admin?.metadata.labels, monitor.selector.matchLabels)
  t.match(monitor.endpoints, [
    {
      scheme: 'https',
      authorization: { credentials: { name: 'sallyport', key: 'metrics-token' } },
      tlsConfig: { serverName: 'gate.example.com', ca: { configMap: { name: 'ca' } } },
    },
  ])
  t.notMatch(JSON.stringify(documents), /insecureSkipVerify/)
  t.throws(() => rendered({ secret: { existingSecret: '' } }), /existingSecret/)
})

t.test(
  'both pods get the CAs, variables and volumes of the operator, and none by default',
  { skip },
  async (t) => {
    const podsOf = (more: Json) => {
      const of = (wanted: string): Json =>
        rendered(more).find(({ kind }) => kind === wanted)?.spec.template.spec
      return { gateway: of('Deployment'), migration: of('Job') }
    }
    const env = [{ name: 'MCP_SECRET_FILES', valueFrom: SECRET_KEY }]
    const own = { extraEnv: [{ name: 'PGAPPNAME', value: 'migration' }] }
    const caBundle = { existingConfigMap: 'company-cas', key: 'trust-bundle.pem' }
    const { gateway, migration } = podsOf({ caBundle, extraEnv: env, ...CLIENT, migrate: own })
    for (const pod of [gateway, migration]) {
      const [container] = pod.containers
      const { value: file } = container.env.find(({ name }: Json) => name === 'NODE_EXTRA_CA_CERTS')
      const mount = container.volumeMounts.find(({ mountPath }: Json) => file.startsWith(`${mountPath}/`))
      t.equal(mount.readOnly, true)
      const item = { key: 'trust-bundle.pem', path: file.slice(mount.mountPath.length + 1) }
      t.same(
        pod.volumes.find(({ name }: Json) => name === mount.name),
        { name: mount.name, configMap: { name: 'company-cas', items: [item] } },
      )
      t.match(
        container.env.filter(({ name }: Json) => name === 'MCP_SECRET_FILES'),
        env,
      )
      t.same(container.volumeMounts.at(-1), CLIENT.extraVolumeMounts[0])
      t.same(pod.volumes.at(-1), CLIENT.extraVolumes[0])
      const names = container.env.map(({ name }: Json) => name)
      t.equal(names.includes('PGAPPNAME'), pod === migration, 'what one pod gets the other one does not')
      t.equal(new Set(names).size, names.length)
    }
    const apart = podsOf({ migrate: CLIENT })
    t.same(apart.migration.volumes.at(-1), CLIENT.extraVolumes[0])
    t.notMatch(JSON.stringify(apart.gateway), /database-client|NODE_EXTRA_CA_CERTS/)
    t.notMatch(JSON.stringify(podsOf({}).migration), /database-client|NODE_EXTRA_CA_CERTS/)
    t.notMatch(JSON.stringify(podsOf({})), /persistentVolumeClaim/)
    const archiving = podsOf({ archive: { existingClaim: 'calls' } })
    t.match(JSON.stringify(archiving.gateway), '"persistentVolumeClaim":{"claimName":"calls"}')
    t.notMatch(JSON.stringify(archiving.migration), /persistentVolumeClaim/)
  },
)

/** Passes a free port of this machine on, as `kubectl port-forward` does, to the URL that `to` gives. Returns its origin. */
async function forwarded(t: Test, to: () => string): Promise<string> {
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = connect(Number(new URL(to()).port), '127.0.0.1')
    for (const [from, on] of [[near, far] as const, [far, near] as const]) {
      sockets.add(from)
      from.on('error', () => on.destroy()).pipe(on)
    }
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return `https://localhost:${(server.address() as AddressInfo).port}`
}

t.test(
  'by the settings of the chart, the dashboard works at a forwarded port, and a form of another origin does nothing',
  { skip: skipWithoutChromium },
  async (t) => {
    t.equal(settingsOfChart(REQUIRED).MCP_PROXY_ADMIN_ORIGINS, 'https://localhost:9444')
    let adminUrl = ''
    const [ours, foreign] = [await forwarded(t, () => adminUrl), await forwarded(t, () => adminUrl)]
    const values = { ...REQUIRED, hostnames: ['localhost', 'gate.example.com'], admin: { origins: [ours] } }
    const said = Object.entries(settingsOfChart(values)).filter(([name]) => !/_FILE$|_DIR$/.test(name))
    const here = { MCP_PROXY_LISTEN: '127.0.0.1:0', MCP_PROXY_ADMIN_LISTEN: '127.0.0.1:0' }
    const gateway = await testGateway(t, { settings: { ...Object.fromEntries(said), ...here } })
    adminUrl = gateway.adminUrl
    const open = await openChromium(t, { url: adminUrl, ca: gateway.ca })
    const signIn = async (origin: string): Promise<Page> => {
      const page = await (await open()).newPage()
      await page.goto(`${origin}/proxy`)
      await page.getByLabel('Operator secret').fill(ADMIN_SECRET)
      await page.getByRole('button', { name: 'Sign in' }).click()
      return page
    }

    const page = await signIn(ours)
    await page.waitForURL(`${ours}/proxy`)
    await page.goto(`${ours}/proxy/agents`)
    await page.getByText('Enroll an agent').first().click()
    await page.getByLabel('Name').fill('first')
    await page.getByRole('button', { name: 'Enroll an agent' }).click()
    await page.locator('[data-file]').first().waitFor({ state: 'attached' })
    t.equal((await gateway.rows({ action: 'agent.created' })).length, 1)

    const refused = await signIn(foreign)
    await refused.getByText('This did not work').first().waitFor()
    // Of another origin, but with the cookies: one site is a host with all its ports.
    await page.goto(`${foreign}/openapi.json`)
    const answer = page.waitForResponse(`${ours}/proxy/sign-out`)
    await page.evaluate(
      `document.body.innerHTML = '<form method="post" action="${ours}/proxy/sign-out">'; document.forms[0].submit()`,
    )
    t.equal((await answer).status(), 403)
    await page.getByText('This did not work').first().waitFor()
    await page.goto(`${ours}/proxy/agents`)
    t.match(await page.content(), 'first', 'still signed in')
  },
)
