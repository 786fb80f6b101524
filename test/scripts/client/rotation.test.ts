import { existsSync, readFileSync } from 'node:fs'
import { chmod, cp, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { calculateJwkThumbprint } from 'jose'
import t, { type Test } from 'tap'
import { createFetch, type Fetch, readIdentity } from '../../../scripts/client/client.ts'
import { watchIdentity } from '../../../scripts/client/identity/watched.ts'
import { newDpopKey, publicDpopJwk } from '../../../scripts/client/signing/dpop-key.ts'
import { clock, identityDirectory } from '../../support/clients/identity.ts'
import { CHAT, scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { completion } from '../../support/upstream.ts'

interface Pair {
  readonly cert: string
  readonly key: string
}

/** An agent with a fetch of its directory, and what the gateway and an operator do with its certificate. */
async function scene(t: Test) {
  const time = clock()
  const gateway = await testGateway(t, { clock: time.now })
  const directory = await identityDirectory(t, gateway)
  const notices: string[] = []
  const fetch = createFetch(directory, { now: time.now, notice: (sentence) => notices.push(sentence) })
  /** A new certificate; the one before is honoured for so many hours. */
  const rotate = async (hours = 24): Promise<Pair> => {
    const path = '/v1/admin/agents/acme::bot/rotate-cert'
    const { json } = await gateway.admin('POST', path, { grace_hours: hours })
    return { cert: json.cert_chain_pem, key: json.private_key_pem }
  }
  /** A call a second after the one before, and whether the certificate was the current one. */
  const called = async (): Promise<string> => {
    time.move(1)
    const { status } = await chat(fetch, gateway)
    const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'desc' })
    return `${status} ${row?.detail.certificate === 'previous' ? 'previous' : 'current'}`
  }
  const put = (name: string, text: string) => writeFile(join(directory, name), text, { mode: 0o600 })
  return { time, gateway, directory, fetch, rotate, called, put, notices }
}

const chat = (fetch: Fetch, { url }: TestGateway, more: object = {}) =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...CHAT, ...more }),
  })

for (const order of [
  ['agent.key', 'agent.crt'],
  ['agent.crt', 'agent.key'],
] as const) {
  t.test(
    `a certificate replaced on the disk is used, never half of it: ${order.join(', then ')}`,
    async (t) => {
      const { rotate, called, put, notices, directory } = await scene(t)
      t.equal(await called(), '200 current')
      const { cert, key } = await rotate()
      const texts = { 'agent.crt': cert, 'agent.key': key }
      t.equal(await called(), '200 previous')
      await put(order[0], texts[order[0]])
      t.equal(await called(), '200 previous', 'the pair is not whole')
      t.equal(await called(), '200 previous')
      await put(order[1], texts[order[1]])
      t.equal(await called(), '200 current')
      t.match(notices, [
        `${directory}: agent.key is not the key of agent.crt; the previous identity stays in use`,
        /bot has changed: new calls use the certificate that ends 20..-..-/,
      ])
      t.equal(notices.length, 2, 'each is said once')
    },
  )
}

t.test('files that are renamed into their places, and one that is not there for a while', async (t) => {
  const { rotate, called, put, directory } = await scene(t)
  t.equal(await called(), '200 current')
  const { cert, key } = await rotate()
  await put('.new.crt', cert)
  await put('.new.key', key)
  await unlink(join(directory, 'agent.key'))
  t.equal(await called(), '200 previous')
  await rename(join(directory, '.new.key'), join(directory, 'agent.key'))
  await rename(join(directory, '.new.crt'), join(directory, 'agent.crt'))
  t.equal(await called(), '200 current')
})

t.test('a Kubernetes secret: all files behind one link, which is swapped', async (t) => {
  const time = clock()
  const gateway = await testGateway(t, { clock: time.now })
  const made = await identityDirectory(t, gateway)
  const { dpopJwk } = readIdentity(made)
  t.ok(dpopJwk, 'its proof key is made')
  const mount = await scratch(t)
  await cp(made, join(mount, '..v1'), { recursive: true })
  await symlink('..v1', join(mount, '..data'))
  for (const name of ['agent.crt', 'agent.key', 'org-ca.crt', 'gateway.json', 'dpop.jwk']) {
    await symlink(`..data/${name}`, join(mount, name))
  }
  const fetch = createFetch(mount, { now: time.now })
  t.equal((await chat(fetch, gateway)).status, 200)
  const { json } = await gateway.admin('POST', '/v1/admin/agents/acme::bot/rotate-cert', { grace_hours: 24 })
  await cp(made, join(mount, '..v2'), { recursive: true })
  await writeFile(join(mount, '..v2/agent.crt'), json.cert_chain_pem)
  await writeFile(join(mount, '..v2/agent.key'), json.private_key_pem)
  await symlink('..v2', join(mount, '..data_tmp'))
  await rename(join(mount, '..data_tmp'), join(mount, '..data'))
  await rm(join(mount, '..v1'), { recursive: true })
  time.move(1)
  t.equal((await chat(fetch, gateway)).status, 200)
  const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'asc' })
  t.equal(new Set(rows.map((row) => row.cert_thumbprint)).size, 2)
})

t.test('calls at work finish on the connection that they began on', async (t) => {
  const { gateway, fetch, rotate, called, put } = await scene(t)
  const half = Promise.withResolvers<void>()
  gateway.upstream.answer = async (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"one": true}\n\n')
    await half.promise
    res.end('data: [DONE]\n\n')
  }
  const stream = await chat(fetch, gateway, { stream: true })
  t.equal(stream.status, 200)
  gateway.upstream.answer = completion
  const { cert, key } = await rotate()
  await put('agent.key', key)
  await put('agent.crt', cert)
  t.equal(await called(), '200 current')
  half.resolve()
  t.match(await stream.text(), /\[DONE\]/, 'the stream has ended cleanly')
  t.equal(await called(), '200 current')
})

t.test('many calls at once see one change, and none of them is lost', async (t) => {
  const { time, gateway, fetch, rotate, put, notices } = await scene(t)
  const all = async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => chat(fetch, gateway)))
    return answers.map(({ status }) => status).filter((status) => status !== 200)
  }
  t.same(await all(), [])
  const { cert, key } = await rotate()
  await put('agent.crt', cert)
  await put('agent.key', key)
  const before = all()
  time.move(1)
  t.same([await before, await all()], [[], []])
  t.equal(notices.length, 1)
})

t.test('a proof key that is replaced: none is made in the moment in which there is none', async (t) => {
  const { gateway, called, put, directory } = await scene(t)
  const path = join(directory, 'dpop.jwk')
  t.equal(await called(), '200 current')
  const next = newDpopKey()
  const registered = await gateway.admin('POST', '/v1/admin/agents/acme::bot/dpop-jwk', publicDpopJwk(next))
  t.equal(registered.status, 200)
  await unlink(path)
  await called()
  t.notOk(existsSync(path))
  await put('dpop.jwk', JSON.stringify(next))
  t.equal(await called(), '200 current')
  const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'desc' })
  t.equal(row?.dpop_jkt, await calculateJwkThumbprint(publicDpopJwk(next)))
})

t.test('a key that others can read is not used, and the reason is said', async (t) => {
  const { rotate, called, put, notices, directory } = await scene(t)
  const { cert, key } = await rotate()
  await put('agent.crt', cert)
  await put('agent.key', key)
  await chmod(join(directory, 'agent.key'), 0o644)
  t.equal(await called(), '200 previous')
  t.match(notices, [/run chmod 600 .*; the previous identity stays in use$/])
  await chmod(join(directory, 'agent.key'), 0o600)
  t.equal(await called(), '200 current')
})

t.test('the files are looked at once a second at most, and at once after a refusal', async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  const { json } = await gateway.admin('POST', '/v1/admin/agents/acme::bot/rotate-cert', { grace_hours: 24 })
  const time = clock()
  const first = readIdentity(directory)
  const watched = watchIdentity(first, { directory, now: time.now, notice: () => {} })
  const replace = async (cert: string, key: string): Promise<void> => {
    await writeFile(join(directory, 'agent.crt'), cert)
    await writeFile(join(directory, 'agent.key'), key)
  }
  await replace(json.cert_chain_pem, json.private_key_pem)
  await watched.refresh()
  t.equal(watched.current(), first, 'it is too soon')
  time.move(1)
  await Promise.all([watched.refresh(), watched.refresh()])
  const second = watched.current()
  t.equal(second.cert, readFileSync(join(directory, 'agent.crt'), 'utf8'))
  await replace(first.cert, first.key)
  await watched.refresh()
  t.equal(watched.current(), second)
  watched.invalidate()
  await watched.refresh()
  t.equal(watched.current().cert, first.cert)
  const same = watched.current()
  await replace(first.cert, first.key)
  time.move(-3600)
  await watched.refresh()
  t.equal(watched.current(), same, 'the same text anew is no change')
})
