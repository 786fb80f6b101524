import { spawn } from 'node:child_process'
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import { readFileSync } from 'node:fs'
import { chmod, copyFile, cp, readdir, rename, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { thumbprintOf } from '../../../certs/x509/x509.ts'
import { createFetch, readIdentity } from '../../../scripts/client/client.ts'
import { nextKey, putNext, settleNext } from '../../../scripts/client/renewal/files.ts'
import { keepRenewed } from '../../../scripts/client/renewal/keep-renewed.ts'
import { renewIdentity } from '../../../scripts/client/renewal/renew.ts'
import { publicDpopJwk } from '../../../scripts/client/signing/dpop-key.ts'
import { DAY_MS, odd } from '../../support/certs/made.ts'
import { arrivals, clock, identityDirectory } from '../../support/clients/identity.ts'
import { corporateCa } from '../../support/foreign.ts'
import { CHAT, scratch, type TestGateway, type TestOptions, testGateway } from '../../support/gateway.ts'
import { NODE_COMPILE_CACHE, sallyport } from '../../support/run.ts'

const DAY_S = 86_400
const FILES = ['agent.crt', 'agent.key', 'dpop.jwk', 'gateway.json', 'org-ca.crt']

/** An agent that was enrolled so many days ago: its certificate is for 90. */
async function enrolled(t: Test, daysAgo = 70, options: TestOptions = {}) {
  const time = clock()
  time.move(-daysAgo * DAY_S)
  const gateway = await testGateway(t, { clock: time.now, ...options })
  const directory = await identityDirectory(t, gateway)
  // Its proof key is made.
  const { dpopJwk } = readIdentity(directory)
  time.move(daysAgo * DAY_S)
  return { gateway, directory, dpopJwk, time }
}

const certOf = (directory: string): X509Certificate =>
  new X509Certificate(readFileSync(join(directory, 'agent.crt')))

const keyOf = (directory: string): KeyObject => createPrivateKey(readFileSync(join(directory, 'agent.key')))

async function works(directory: string, { url }: TestGateway): Promise<number> {
  const body = JSON.stringify(CHAT)
  const headers = { 'content-type': 'application/json' }
  const answer = await createFetch(directory)(`${url}/v1/chat/completions`, { method: 'POST', headers, body })
  return answer.status
}

t.test('sallyport renew --cert: the certificate that its own CA has renewed', async (t) => {
  const { gateway, directory, time } = await enrolled(t, 1)
  const corporate = await corporateCa(time.now())
  const [old, next] = [await corporate.leaf('own'), await corporate.leaf('own')]
  await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: corporate.caPem, kind: 'organisation' })
  await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', {
    ...{ agent_name: 'own', capabilities: ['llm.chat'], cert_pem: old.certPem, private_key_pem: old.keyPem },
    dpop_jwk: publicDpopJwk(readIdentity(directory).dpopJwk),
  })
  const place = (name: string) => join(directory, name)
  await writeFile(place('agent.crt'), old.certPem)
  await writeFile(place('agent.key'), old.keyPem)
  const folder = await scratch(t)
  const files = { '--cert': next.certPem, '--key': next.keyPem }
  const args: string[] = []
  for (const [name, text] of Object.entries(files)) {
    await writeFile(join(folder, name), text)
    args.push(name, join(folder, name))
  }
  t.match(await sallyport(['renew', '--identity', directory, '--cert', 'x']), { code: 1, err: /give both/ })
  const ran = await sallyport(['renew', '--identity', directory, ...args])
  t.equal(ran.code, 0, ran.err)
  t.equal(readFileSync(place('agent.key'), 'utf8'), next.keyPem)
  t.same((await readdir(directory)).toSorted(), FILES, 'nothing is left beside')
  t.equal(await works(directory, gateway), 200)
})

t.test('sallyport renew: a new key and certificate, kept to their owner, and used at once', async (t) => {
  const { gateway, directory } = await enrolled(t)
  const [cert, key] = [certOf(directory), readFileSync(join(directory, 'agent.key'), 'utf8')]
  const ran = await sallyport(['renew', '--identity', directory])
  t.equal(ran.code, 0, ran.err)
  t.match(
    ran.out,
    /^renewed .*bot: valid until 20..-..-..; the previous certificate is accepted until 20.*Z\n$/,
  )
  t.not(certOf(directory).fingerprint256, cert.fingerprint256)
  t.not(readFileSync(join(directory, 'agent.key'), 'utf8'), key)
  t.same((await readdir(directory)).toSorted(), FILES, 'nothing is left beside')
  for (const name of ['agent.crt', 'agent.key']) {
    t.equal((await stat(join(directory, name))).mode & 0o777, 0o600, name)
  }
  t.equal(await works(directory, gateway), 200)
  const again = await sallyport(['renew', '--identity', directory])
  t.match(again, {
    code: 0,
    out: /^.*bot is valid until 20..-..-.., and can be renewed from 20..-..-.. on\n$/,
  })
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
})

t.test('sallyport renew --if-within DAYS, and what it says where it cannot', async (t) => {
  const { directory } = await enrolled(t)
  const renew = (...args: string[]) => sallyport(['renew', '--identity', directory, ...args])
  t.match(await renew('--if-within', '10'), { code: 0, out: /can be renewed from/ }, 'it has 20 days left')
  t.match(await renew('--if-within', 'soon'), { code: 1, err: /--if-within must be a number of days/ })
  t.match(await sallyport(['renew']), { code: 1, err: /^sallyport: name the identity/ })
  t.match(await sallyport(['renew', '--help']), { code: 0, out: /--if-within DAYS +only if it ends/ })
  t.match(await renew('--gateway', 'https://localhost:1'), { code: 1, err: /^sallyport: .*ECONNREFUSED/ })
  t.match(await renew('--if-within', '30'), { code: 0, out: /^renewed / }, 'with the key that waited')
  const dates = { notBefore: Date.now() - 2 * DAY_MS, notAfter: Date.now() - DAY_MS }
  const old = await odd({ extensions: [], ...dates })
  await writeFile(join(directory, 'agent.crt'), old.pem)
  t.match(await renew(), { code: 1, err: /ended on 20..-..-..: ask an operator for a new certificate/ })
})

for (const mode of ['required', 'optional\nno_downgrade: true', 'off']) {
  t.test(`the proof that the gateway demands is sent: egress_dpop_mode ${mode}`, async (t) => {
    const files = { '20-dpop.yaml': `plugin: dpop\negress_dpop_mode: ${mode}\n` }
    const { gateway, directory, dpopJwk } = await enrolled(t, 70, { files })
    const path = '/v1/admin/agents/acme::bot/dpop-jwk'
    t.equal((await gateway.admin('POST', path, publicDpopJwk(dpopJwk))).status, 200)
    const seen = arrivals(t, gateway)
    await renewIdentity(directory)
    const asked = seen.filter((one) => one.path === '/v1/auth/certificate')
    t.equal(asked.at(-1)?.proof?.htm, mode === 'off' ? undefined : 'POST')
    t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
    if (mode !== 'off') t.equal(await works(directory, gateway), 200)
  })
}

t.test('a failure leaves the identity as it was, and the next attempt asks with the same key', async (t) => {
  const { gateway, directory } = await enrolled(t)
  const before = FILES.map((name) => readFileSync(join(directory, name), 'utf8'))
  await t.rejects(renewIdentity(directory, 'https://localhost:1'))
  t.same(
    FILES.map((name) => readFileSync(join(directory, name), 'utf8')),
    before,
  )
  const waiting = readFileSync(join(directory, 'agent.key.next'), 'utf8')
  t.equal((await stat(join(directory, 'agent.key.next'))).mode & 0o777, 0o600)
  await renewIdentity(directory)
  t.equal(readFileSync(join(directory, 'agent.key'), 'utf8'), waiting)
  t.equal(await works(directory, gateway), 200)
})

t.test(
  'an answer that never came is asked for again: the certificate is the one that was pinned',
  async (t) => {
    const { gateway, directory } = await enrolled(t)
    const copy = join(await scratch(t), 'copy')
    await nextKey(directory)
    await cp(directory, copy, { recursive: true })
    // As if this answer had been lost: the other directory knows nothing of it.
    await renewIdentity(copy)
    await renewIdentity(directory)
    t.equal(certOf(directory).fingerprint256, certOf(copy).fingerprint256)
    t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
  },
)

t.test('two that renew at once come to the same pair', async (t) => {
  const { gateway, directory } = await enrolled(t)
  await Promise.all([renewIdentity(directory), renewIdentity(directory), renewIdentity(directory)])
  t.ok(certOf(directory).checkPrivateKey(keyOf(directory)))
  t.same((await readdir(directory)).toSorted(), FILES)
  t.equal(await works(directory, gateway), 200)
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
})

t.test('a crash at any moment of the replacement is mended by the next one', async (t) => {
  const { gateway, directory } = await enrolled(t)
  const renewed = join(await scratch(t), 'renewed')
  await nextKey(directory)
  await cp(directory, renewed, { recursive: true })
  await renewIdentity(renewed)
  const place = (name: string): string => join(directory, name)
  // The certificate is on the disk, and nothing was renamed.
  await copyFile(join(renewed, 'agent.crt'), place('agent.crt.next'))
  const untouched = join(await scratch(t), 'untouched')
  await cp(directory, untouched, { recursive: true })
  // The key was, and the certificate was not.
  await rename(place('agent.key.next'), place('agent.key'))
  for (const crashed of [untouched, directory]) {
    await settleNext(crashed)
    t.equal(certOf(crashed).fingerprint256, certOf(renewed).fingerprint256)
    t.ok(certOf(crashed).checkPrivateKey(keyOf(crashed)))
    t.same((await readdir(crashed)).toSorted(), FILES)
  }
  t.equal(await works(directory, gateway), 200)
  // One that is for no key here.
  const stranger = (await enrolled(t)).directory
  await copyFile(join(stranger, 'agent.crt'), place('agent.crt.next'))
  await settleNext(directory)
  t.same((await readdir(directory)).toSorted(), FILES)
  await nextKey(directory)
  await t.rejects(putNext(directory, readFileSync(join(stranger, 'agent.crt'), 'utf8')), /for another key/)
})

t.test('links are left to whoever made them, and nothing is asked', async (t) => {
  const { gateway, directory } = await enrolled(t)
  const mount = await scratch(t)
  for (const name of FILES) await symlink(join(directory, name), join(mount, name))
  await t.rejects(renewIdentity(mount), /agent\.key is a link: renew the file that it leads to/)
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 0)
})

/** Runs the keeper until it wants to sleep for the `nights`th time; gives what it said and how long it slept. */
async function kept(
  directory: string,
  nights: number,
  more: { url?: string; random?: () => number; now?: () => number; wake?: (night: number) => unknown } = {},
) {
  const { wake, ...rest } = more
  const notices: string[] = []
  const slept: number[] = []
  const stop = new AbortController()
  const sleep = async (ms: number): Promise<void> => {
    slept.push(ms)
    await wake?.(slept.length)
    if (slept.length >= nights) stop.abort()
  }
  const random = () => 0.5
  const notice = (sentence: string): unknown => notices.push(sentence)
  await keepRenewed({ directory, notice, signal: stop.signal, random, sleep, ...rest })
  return { notices, minutes: slept.map((ms) => ms / 60_000) }
}

/** The sidecar as a process of its own, which ends with the test. */
function startConnect(t: Test, directory: string, ...args: readonly string[]) {
  const script = join(import.meta.dirname, '../../../scripts/sallyport.ts')
  const command = [script, 'connect', '--identity', directory, '--port', '0', ...args]
  const env = { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE }
  const child = spawn(process.execPath, command, { env })
  t.teardown(() => child.kill('SIGKILL'))
  let output = ''
  const heard = new EventEmitter()
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
      heard.emit('more')
    })
  }
  const until = async (text: RegExp): Promise<string> => {
    while (!text.test(output)) await once(heard, 'more')
    return text.exec(output)?.[1] ?? ''
  }
  return { child, until, output: () => output }
}

t.test('the sidecar renews by itself, says so, and calls with the new certificate', async (t) => {
  const { gateway, directory } = await enrolled(t, 80)
  const first = certOf(directory)
  const { child: sidecar, until } = startConnect(t, directory)
  const url = await until(/"ready","url":"([^"]+)"/)
  await until(/bot was renewed: its certificate is valid until 20/)
  t.not(certOf(directory).fingerprint256, first.fingerprint256)
  const chat = async (): Promise<string | null | undefined> => {
    const headers = { 'content-type': 'application/json' }
    const body = JSON.stringify(CHAT)
    const { status } = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body })
    t.equal(status, 200)
    const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'desc' })
    return row?.cert_thumbprint
  }
  // It looks once a second: as many calls as it takes.
  const wanted = thumbprintOf(certOf(directory).raw)
  while ((await chat()) !== wanted) await new Promise(setImmediate)
  const ended = once(sidecar, 'close')
  sidecar.kill('SIGTERM')
  t.same(await ended, [0, null], 'the keeper does not hold it')
})

t.test('the sidecar leaves the certificate to others where it is told to', async (t) => {
  const { gateway, directory } = await enrolled(t, 80)
  const seen = arrivals(t, gateway)
  const { child, until, output } = startConnect(t, directory, '--no-renew')
  const url = await until(/"ready","url":"([^"]+)"/)
  t.equal((await fetch(`${url}/v1/models`)).status, 200)
  const ended = once(child, 'close')
  child.kill('SIGTERM')
  await ended
  t.notMatch(output(), /renewed/)
  t.same(
    seen.filter(({ path }) => path === '/v1/auth/certificate'),
    [],
  )
})

t.test('the keeper renews in the first half of the last third, says so, and then waits', async (t) => {
  const { gateway, directory } = await enrolled(t, 70)
  const day = 24 * 60
  const late = await kept(directory, 1, { random: () => 0.9 })
  t.same(late, { notices: [], minutes: [10] }, 'its share of the last third has not gone by')
  const { notices, minutes } = await kept(directory, 2)
  t.match(notices, [/bot was renewed: its certificate is valid until 20/])
  t.equal(notices.length, 1)
  t.ok(minutes.every((each) => each <= day / 4))
  t.equal(await works(directory, gateway), 200)
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
})

t.test(
  'while the gateway replaces its CA, each way of renewing moves to the new one, and back',
  async (t) => {
    const { gateway, directory } = await enrolled(t, 1)
    const notices: string[] = []
    const call = createFetch(directory, { followCaEveryMs: 1, notice: (one) => notices.push(one) })
    const chat = async (): Promise<number> => {
      const headers = { 'content-type': 'application/json' }
      const body = JSON.stringify(CHAT)
      return (await call(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers, body })).status
    }
    const step = (name: string) =>
      gateway.admin('POST', `/v1/admin/ca/rotation/${name}`, name === 'prepare' ? {} : undefined)
    const roots = () => readFileSync(join(directory, 'org-ca.crt'), 'utf8').split('BEGIN').length - 1
    const ways: Readonly<Record<string, () => Promise<unknown>>> = {
      'sallyport renew': () => sallyport(['renew', '--identity', directory]),
      'the keeper': () => kept(directory, 1),
      createFetch: async () => {
        const before = certOf(directory).fingerprint256
        while (certOf(directory).fingerprint256 === before && (await chat()) === 200)
          await new Promise(setImmediate)
      },
    }
    t.equal((await step('prepare')).status, 200)
    const young = certOf(directory).fingerprint256
    t.match(await sallyport(['renew', '--identity', directory]), { code: 0, out: /can be renewed from/ })
    t.equal(certOf(directory).fingerprint256, young, 'prepared: nothing to renew')
    t.equal(roots(), 2, 'but both roots are there')
    const steps = ['issue', 'cancel', 'issue']
    for (const [index, [name, way]] of Object.entries(ways).entries()) {
      t.equal((await step(steps[index] ?? '')).status, 200, name)
      const before = certOf(directory).fingerprint256
      await way()
      t.not(certOf(directory).fingerprint256, before, `${name} moves`)
      t.equal(await chat(), 200, name)
    }
    t.equal((await step('finish')).status, 200)
    t.equal(await chat(), 200)
    await sallyport(['renew', '--identity', directory])
    t.equal(roots(), 1, 'the old root is gone')
    t.equal(await chat(), 200)
    t.same((await readdir(directory)).toSorted(), FILES, 'nothing is left beside')
  },
)

t.test('the keeper tries again, less and less often, and goes on where the files are mended', async (t) => {
  const { directory } = await enrolled(t, 80)
  const { notices, minutes } = await kept(directory, 12, { url: 'https://localhost:1' })
  t.match(notices[0], /was not renewed \(.*ECONNREFUSED.*\); the next attempt is in 1 min$/)
  t.same(minutes.slice(0, 4), [0.75, 1.5, 3, 6])
  t.equal(Math.max(...minutes), 0.75 * 6 * 60)
  await chmod(join(directory, 'agent.key'), 0o644)
  const healed = await kept(directory, 3, {
    wake: () => chmod(join(directory, 'agent.key'), 0o600),
  })
  t.match(healed.notices, [/run chmod 600/, /was renewed/])
})

t.test(
  'the keeper asks once where the gateway does not renew, and again for another certificate',
  async (t) => {
    const { gateway, directory } = await enrolled(t, 70)
    const thief = join(await scratch(t), 'thief')
    await cp(directory, thief, { recursive: true })
    await renewIdentity(thief)
    const seen = arrivals(t, gateway)
    const { notices } = await kept(directory, 5, {
      wake: async (night) => {
        if (night === 3)
          for (const name of ['agent.key', 'agent.crt'])
            await copyFile(join(thief, name), join(directory, name))
      },
    })
    t.match(notices, [/is not renewed: Another certificate has replaced this one/])
    t.equal(notices.length, 1)
    t.equal(seen.filter(({ path }) => path === '/v1/auth/certificate').length, 1)
  },
)
