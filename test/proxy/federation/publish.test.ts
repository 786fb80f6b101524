import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { insertPin } from '../../../db/principals/pins.ts'
import { insertPrincipal, setActive, touchRevision } from '../../../db/principals/write.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import {
  AT,
  answering,
  dataDirectory,
  FIVE_MINUTES_MS,
  ISSUER,
  opened,
  receiver,
} from '../../support/federation.ts'

await t.test('§3 a changed federated agent is pushed as a JWS that the published keys verify', async (t) => {
  const [gate, hub] = await opened(t)
  const id = 'acme::far'
  await gate.write(
    insertPrincipal(gate.database, {
      ...{
        type: 'agent',
        id,
        ref: id,
        name: 'far',
        displayName: 'Far away',
        capabilities: ['llm.chat', 'x.y'],
      },
      ...{
        enrollmentMethod: 'spiffe',
        spiffeId: 'spiffe://td/acme/far',
        dpopJkt: 'jkt',
        federated: true,
        at: AT,
      },
    }),
    insertPin(gate.database, {
      thumbprint: 'ab',
      type: 'agent',
      id,
      notBefore: AT,
      notAfter: AT + 1,
      at: AT,
    }),
  )
  await gate.task(hub.url).run()
  t.equal(hub.received.length, 1)
  const [sent] = hub.received
  t.equal(sent?.path, 'POST /federation?tenant=1')
  t.match(sent?.headers, { 'content-type': 'application/jose', 'idempotency-key': 'acme::far@1' })
  t.strictSame(Object.keys(sent?.headers ?? {}).toSorted(), [
    'connection',
    'content-length',
    'content-type',
    'host',
    'idempotency-key',
  ])
  const { protectedHeader, payload } = await gate.verify(sent?.jws ?? '')
  const { kid } = await gate.keys.signer()
  t.strictSame(protectedHeader, { alg: 'ES256', typ: 'sallyport-federation+jwt', kid })
  // Whole: nothing else of the agent, and nothing secret, leaves the house.
  const { jti, ...claims } = payload
  t.match(jti, /^[0-9a-f-]{36}$/)
  t.strictSame(claims, {
    iss: ISSUER,
    iat: AT / 1000,
    agent: {
      agent_id: id,
      display_name: 'Far away',
      capabilities: ['llm.chat', 'x.y'],
      is_active: true,
      spiffe_id: 'spiffe://td/acme/far',
      cert_thumbprint: 'ab',
      dpop_jkt: 'jkt',
    },
    federation_revision: 1,
  })
})

await t.test('§3 a revision is pushed once, and an agent that is not federated never', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  await gate.enroll('near', false)
  await gate.grant('near', 'llm.chat')
  const task = gate.task(hub.url)
  await task.run()
  await task.run()
  t.strictSame(hub.labels(), ['far@1'])
  t.strictSame(await gate.pushed(), { far: 1, near: 0 })
})

await t.test(
  '§3 grants, deactivation, reactivation and a new certificate are pushed in their order',
  async (t) => {
    const [gate, hub] = await opened(t)
    const id = await gate.enroll('far')
    const task = gate.task(hub.url)
    await task.run()
    const agent = { type: 'agent', id, at: AT } as const
    await gate.grant('far', 'llm.chat')
    await task.run()
    for (const change of [
      setActive(gate.database, { ...agent, active: false }),
      setActive(gate.database, { ...agent, active: true }),
      touchRevision(gate.database, agent),
    ]) {
      await gate.write(change)
      await task.run()
    }
    t.strictSame(hub.labels(), ['far@1', 'far@2', 'far@3', 'far@4', 'far@5'])
    const said = await Promise.all(
      hub.received.map(async ({ jws }) => (await gate.verify(jws)).payload.agent),
    )
    t.match(said, [
      { capabilities: [], is_active: true },
      { capabilities: ['llm.chat'], is_active: true },
      { is_active: false },
      { is_active: true },
      { is_active: true },
    ])
  },
)

await t.test('§3 several changes between two passes are one push, of the last revision', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  await gate.grant('far', 'llm.chat')
  await gate.grant('far')
  await gate.task(hub.url).run()
  t.strictSame(hub.labels(), ['far@3'])
  t.strictSame(await gate.pushed(), { far: 3 })
})

await t.test('§3 no lower revision follows a higher one, and a new one does not wait', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  hub.answer = answering(503)
  const task = gate.task(hub.url)
  await task.run()
  await gate.grant('far', 'llm.chat')
  await task.run()
  await task.run()
  gate.clock.at += FIVE_MINUTES_MS
  hub.answer = answering(204)
  await task.run()
  await task.run()
  t.strictSame(hub.labels(), ['far@1', 'far@2', 'far@2'])
})

await t.test('§3 a change during a push is pushed next, and not beside it', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  const task = gate.task(hub.url)
  let beside: Promise<void> = Promise.resolve()
  hub.answer = async (_received, response) => {
    hub.answer = answering(204)
    await gate.grant('far', 'llm.chat')
    beside = task.run()
    response.end()
  }
  await task.run()
  await beside
  t.strictSame(hub.labels(), ['far@1'])
  t.strictSame(await gate.pushed(), { far: 1 })
  await task.run()
  t.strictSame(hub.labels(), ['far@1', 'far@2'])
  t.strictSame(await gate.pushed(), { far: 2 })
})

await t.test('§3 a restart goes on where last_pushed_revision says', async (t) => {
  const directory = t.testdir()
  const hub = await receiver(t)
  const before = await dataDirectory(t, directory)
  await before.enroll('a')
  await before.enroll('b')
  hub.answer = ({ label }, response) => void response.writeHead(label === 'b@1' ? 500 : 200).end()
  await before.task(hub.url).run()
  t.strictSame(hub.labels().toSorted(), ['a@1', 'b@1'])
  await before.close()
  const after = await dataDirectory(t, directory)
  await after.task(hub.url).run()
  t.strictSame(hub.labels().slice(2), ['b@1'])
})

await t.test('§3 at most four agents are pushed at once, and a pass takes all that changed', async (t) => {
  const [gate, hub] = await opened(t)
  const names = Array.from({ length: 205 }, (_, index) => `n${index}`)
  await Promise.all(names.map((name) => gate.enroll(name)))
  let open = 0
  let most = 0
  hub.answer = async (_received, response) => {
    open += 1
    most = Math.max(most, open)
    for (let turn = 0; turn < 5; turn += 1) await setImmediate()
    open -= 1
    response.end()
  }
  await gate.task(hub.url).run()
  t.strictSame(new Set(hub.labels()), new Set(names.map((name) => `${name}@1`)))
  t.equal(hub.received.length, names.length)
  t.ok(most <= 4, `${most}`)
})

await t.test('§3 after a rotation the new key signs, and is among the published ones', async (t) => {
  const [gate, hub] = await opened(t)
  await gate.enroll('far')
  const old = (await gate.keys.signer()).kid
  const kid = await gate.keys.rotate((key) =>
    serviceEntry('signing_key.rotated', 'success', { kid: key }, AT, 'cd'.repeat(32)),
  )
  await gate.task(hub.url).run()
  const { protectedHeader } = await gate.verify(hub.received[0]?.jws ?? '')
  t.equal(protectedHeader.kid, kid)
  t.not(kid, old)
})
