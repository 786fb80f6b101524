import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { odd } from '../../support/certs/made.ts'
import { answering, dataDirectory, FIVE_MINUTES_MS, opened, receiver } from '../../support/federation.ts'

await t.test('§3 a push that was not answered 2xx is tried again, later and until it is', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  const task = gate.task(hub.url)
  for (const [index, status] of [500, 404, 302, 200].entries()) {
    // It echoes the URL, whose query may hold a token.
    hub.answer = ({ path }, response) =>
      void response.writeHead(status, { location: path, 'www-authenticate': path }).end(path)
    await task.run()
    t.equal(hub.received.length, index + 1, `${status}`)
    t.strictSame(await gate.pushed(), { far: status === 200 ? 1 : 0 })
    await task.run()
    t.equal(hub.received.length, index + 1, 'not before its wait is over')
    gate.clock.at += FIVE_MINUTES_MS
  }
  t.equal(new Set(hub.received.map(({ headers }) => headers['idempotency-key'])).size, 1)
  t.equal(new Set(hub.received.map(({ jws }) => jws)).size, 4, 'each signed anew')
  t.match(gate.lines().join(''), /"agent":"acme::far","revision":1,"failures":3/)
  t.notMatch(gate.lines().join(''), /tenant/, 'the URL is not logged: its query may hold a token')
})

await t.test(
  'a receiver that refuses, and whose clock is another, is told with the difference',
  async (t) => {
    const [gate, hub] = await opened(t)
    await gate.enroll('far')
    const task = gate.task(hub.url)
    const dates = { behind: -95_000, ahead: 95_000, like: 5_000 }
    for (const ms of Object.values(dates)) {
      hub.answer = answering(401, { date: new Date(gate.clock.at + ms).toUTCString() })
      await task.run()
      gate.clock.at += FIVE_MINUTES_MS
    }
    hub.answer = answering(401, { date: 'none' })
    await task.run()
    const told = gate
      .lines()
      .join('')
      .matchAll(/the receiver answered 401(?:; its clock is (\d+ s [a-z]+))?[^;]/g)
    t.strictSame(
      [...told].map(([, gap]) => gap).filter((_, index) => index % 2 === 0),
      ['95 s behind', '95 s ahead', undefined, undefined],
    )
  },
)

await t.test('§3 a receiver that cannot be reached is tried again', async (t) => {
  const [gate, gone] = await opened(t)
  await gate.enroll('far')
  await gone.close()
  const task = gate.task(gone.url)
  await task.run()
  t.match(gate.lines().join(''), /ECONNREFUSED/)
  const back = await receiver(t, Number(new URL(gone.url).port))
  gate.clock.at += FIVE_MINUTES_MS
  await task.run()
  t.strictSame(back.labels(), ['far@1'])
  t.strictSame(await gate.pushed(), { far: 1 })
})

await t.test('§3 what was received and could not be noted is sent again under the same key', async (t) => {
  const directory = t.testdir()
  const hub = await receiver(t)
  const before = await dataDirectory(t, directory)
  await before.enroll('far')
  const task = before.task(hub.url)
  hub.answer = async (_received, response) => {
    await before.ledger.close()
    response.end()
  }
  await task.run()
  t.match(before.lines().join(''), /the audit ledger is closed/)
  await before.close()
  hub.answer = answering(204)
  const after = await dataDirectory(t, directory)
  t.strictSame(await after.pushed(), { far: 0 })
  await after.task(hub.url).run()
  t.strictSame(
    hub.received.map(({ headers }) => headers['idempotency-key']),
    ['acme::far@1', 'acme::far@1'],
  )
})

await t.test('§3 pushes that hang hold up no other agent', async (t) => {
  const [gate, hub] = await opened(t)
  for (const name of ['hung1', 'hung2', 'hung3', 'm', 'n', 'o']) await gate.enroll(name)
  const held: (() => void)[] = []
  hub.answer = ({ label }, response) => {
    if (label.startsWith('hung')) held.push(() => void response.writeHead(500).end())
    else response.end()
    // Only once all the others are through: were they to wait for the hung ones, nothing would ever move.
    if (hub.received.length === 6) for (const release of held) release()
  }
  await gate.task(hub.url).run()
  t.strictSame(await gate.pushed(), { hung1: 0, hung2: 0, hung3: 0, m: 1, n: 1, o: 1 })
})

await t.test(
  '§3 of agents that are refused again and again a few are tried in a pass, beside all that is new',
  async (t) => {
    const [gate, hub] = await opened(t)
    const names = Array.from({ length: 20 }, (_, index) => `bad${index}`)
    await Promise.all(names.map((name) => gate.enroll(name)))
    hub.answer = ({ label }, response) => void response.writeHead(label.startsWith('bad') ? 422 : 204).end()
    const task = gate.task(hub.url)
    await task.run()
    const retried: string[] = []
    for (const name of ['x', 'y', 'z']) {
      const before = hub.received.length
      // Those that were tried in the pass before wait longer than this.
      gate.clock.at += 2_000
      await gate.enroll(name)
      await task.run()
      const tried = hub.labels().slice(before)
      t.ok(tried.includes(`${name}@1`))
      t.equal(tried.length, 1 + 8)
      retried.push(...tried.filter((label) => label.startsWith('bad')))
    }
    t.equal(new Set(retried).size, 20, 'the longest waiting first: each has its turn')
  },
)

await t.test('§3 an agent that is federated no longer is not tried again', async (t) => {
  const [gate, hub] = await opened(t)
  const id = await gate.enroll('far')
  hub.answer = answering(500)
  const task = gate.task(hub.url)
  await task.run()
  await gate.write({
    sql: `update internal_agents set federated = 0 where agent_id = '${id}'`,
    parameters: [],
  })
  gate.clock.at += FIVE_MINUTES_MS
  await task.run()
  t.strictSame(hub.labels(), ['far@1'])
})

await t.test('§3 a receiver that does not answer in time has failed', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  hub.answer = () => {}
  await gate.task(hub.url, 50).run()
  t.strictSame(await gate.pushed(), { far: 0 })
  t.match(gate.lines().join(''), /no answer within 50 ms/)
})

await t.test('§3 stopping cuts a push that hangs, and nothing is sent after it', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  const task = gate.task(hub.url)
  let cut: Promise<unknown> = Promise.resolve()
  const arrived = new Promise<void>((resolve) => {
    hub.answer = (_received, response) => {
      cut = once(response, 'close')
      resolve()
    }
  })
  const pass = task.run()
  await arrived
  await task.stop()
  await pass
  await cut
  await task.run()
  t.equal(hub.received.length, 1)
  t.strictSame(await gate.pushed(), { far: 0 })
  t.strictSame(gate.lines(), [], 'stopping is no failure of the receiver')
})

await t.test('§3 a redirect is not followed', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  for (const status of [301, 302, 303, 307, 308]) {
    hub.answer = answering(status, { location: '/elsewhere' })
    await gate.task(hub.url).run()
  }
  t.strictSame(
    hub.received.map(({ path }) => path),
    Array(5).fill('POST /federation?tenant=1'),
  )
  t.strictSame(await gate.pushed(), { far: 0 })
})

await t.test('§3 an answer without an end is cut, and its status counts', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  const piece = Buffer.alloc(65_536)
  let cut: Promise<unknown> = Promise.resolve()
  hub.answer = (_received, response) => {
    const more = (): void => {
      while (!response.destroyed && response.write(piece));
    }
    cut = once(response, 'close')
    response.on('drain', more)
    more()
  }
  await gate.task(hub.url).run()
  await cut
  t.strictSame(await gate.pushed(), { far: 1 })
})

await t.test('§3 T16: the metadata service of a cloud is no receiver', async (t) => {
  const gate = await dataDirectory(t, t.testdir())
  await gate.enroll('far')
  await gate.task('https://169.254.169.254/').run()
  t.strictSame(await gate.pushed(), { far: 0 })
  t.match(gate.lines().join(''), /connecting to 169\.254\.169\.254 is refused: metadata/)
})

await t.test('§3 a receiver whose certificate does not verify is sent nothing', async (t) => {
  const gate = await dataDirectory(t, t.testdir())
  await gate.enroll('far')
  const { pem, key } = await odd({
    extensions: [],
    notBefore: Date.now() - 1000,
    notAfter: Date.now() + 600_000,
  })
  let asked = 0
  const server = createServer(
    { cert: pem, key: key.export({ type: 'pkcs8', format: 'pem' }) },
    (_request, response) => {
      asked += 1
      response.end()
    },
  ).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  // A server that listens on TCP has this form of address.
  const { port } = server.address() as AddressInfo
  // The switch that turns verification off where nobody says otherwise. The gateway refuses to start under
  // it.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  t.teardown(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED)
  await gate.task(`https://127.0.0.1:${port}/`).run()
  t.equal(asked, 0)
  t.strictSame(await gate.pushed(), { far: 0 })
  t.match(gate.lines().join(''), /self.signed certificate/i)
})
