import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { DpopMode } from '../../../plugins/dpop/dpop.ts'
import { bench, boundTo, DOOR, deniedRows, dpopToken } from '../../support/auth/bench.ts'
import { type ProofSigner, proof, proofSigner } from '../../support/dpop.ts'
import type { Identity, TestGateway } from '../../support/gateway.ts'

interface Person {
  readonly identity: Identity
  readonly signer: ProofSigner
  readonly token: string
}

await t.test('D-34 RFC 9449 §11.11 certificate, token and key are one person’s, or nobody’s', async (t) => {
  const b = await bench(t)
  const person = async (name: string): Promise<Person> => {
    const identity = await b.gateway.enroll(name, ['llm.chat'])
    const signer = proofSigner()
    const htu = `${b.gateway.url}/v1/auth/token`
    const { headers } = await b.askToken(null)
    const issued = await b.send(proof(signer, b.claims({ htu, nonce: headers['dpop-nonce'] })), {
      who: identity,
      path: '/v1/auth/token',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: 'grant_type=client_credentials',
    })
    return { identity, signer, token: issued.json.access_token }
  }
  const alice = await person('alice')
  const bob = await person('bob')
  const both = [alice, bob] as const
  const eight = both.flatMap((certificate) =>
    both.flatMap((token) => both.map((key) => ({ certificate, token, key }) as const)),
  )
  const statuses: Record<string, number> = {}
  const name = (who: Person): string => (who === alice ? 'alice' : 'bob')
  const refused: string[] = []
  for (const { certificate, token, key } of eight) {
    const dpop = proof(key.signer, b.claims(boundTo(token.token)))
    const answered = await b.send(dpop, { who: certificate.identity, headers: dpopToken(token.token) })
    statuses[`${name(certificate)} ${name(token)} ${name(key)}`] = answered.status
    if (answered.status !== 200) {
      t.equal(answered.json.reason, 'token_invalid')
      refused.push(answered.json.request_id)
    }
  }
  // Of the eight with alice’s own certificate, token and key one passes; bob’s own three are the other one
  // here.
  t.strictSame(statuses, {
    'alice alice alice': 200,
    'alice alice bob': 401,
    'alice bob alice': 401,
    'alice bob bob': 401,
    'bob alice alice': 401,
    'bob alice bob': 401,
    'bob bob alice': 401,
    'bob bob bob': 200,
  })
  const rows = await deniedRows(b.gateway)
  t.ok(
    refused.every((id) => rows.has(id)),
    'each refusal is a denied row',
  )
})

type TokenKind = 'no token' | 'bound token' | 'certificate-only token'
type ProofKind = 'no proof' | 'good proof' | 'bad proof'
type Cell = readonly [status: 200 | 401, why: string]

// docs/threats.md#d-35: rows are the mode and the token, columns the proof. The agent has registered the key
// that its good proofs are by.
const PROOFS: readonly ProofKind[] = ['no proof', 'good proof', 'bad proof']
const CELLS: Readonly<Record<DpopMode, Readonly<Record<TokenKind, readonly [Cell, Cell, Cell]>>>> = {
  // Proofs are not looked at; certificates and tokens are.
  off: {
    'no token': [
      [200, 'mutual TLS'],
      [200, 'ignored'],
      [200, 'ignored'],
    ],
    'bound token': [
      [200, 'bound to the certificate too'],
      [200, 'ignored'],
      [200, 'ignored'],
    ],
    'certificate-only token': [
      [200, 'mutual TLS'],
      [200, 'ignored'],
      [200, 'ignored'],
    ],
  },
  // Mutual TLS is enough, but what is presented must hold.
  optional: {
    'no token': [
      [200, 'mutual TLS'],
      [200, 'proven'],
      [401, 'presented and wrong'],
    ],
    'bound token': [
      [401, 'a bound token without its key'],
      [200, 'proven'],
      [401, 'presented and wrong'],
    ],
    'certificate-only token': [
      [200, 'mutual TLS'],
      [200, 'proven'],
      [401, 'presented and wrong'],
    ],
  },
  required: {
    'no token': [
      [401, 'no proof'],
      [200, 'proven by the registered key'],
      [401, 'wrong'],
    ],
    'bound token': [
      [401, 'a bound token without its key'],
      [200, 'proven by the token’s key'],
      [401, 'wrong'],
    ],
    'certificate-only token': [
      [401, 'no proof'],
      [200, 'proven by the registered key'],
      [401, 'wrong'],
    ],
  },
}

async function switchTo(gateway: TestGateway, mode: DpopMode, noDowngrade = false): Promise<void> {
  const text = `plugin: dpop\negress_dpop_mode: "${mode}"\nno_downgrade: ${noDowngrade}\n`
  await writeFile(join(gateway.pluginsDir, '20-dpop.yaml'), text)
  if (!(await gateway.reload())) throw new Error('the mode was not taken')
}

await t.test('D-35 §5.2-5 the twenty-seven cells of mode, token and proof', async (t) => {
  const b = await bench(t)
  const { status } = await b.gateway.admin('POST', `/v1/admin/agents/${b.bot.id}/dpop-jwk`, b.signer.jwk)
  t.equal(status, 200)
  const bound: string = (await b.token()).json.access_token
  const loose: string = (await b.token(null)).json.access_token
  const tokens: Record<TokenKind, { headers: Record<string, string>; claims: object }> = {
    'no token': { headers: {}, claims: {} },
    'bound token': { headers: dpopToken(bound), claims: boundTo(bound) },
    'certificate-only token': { headers: { authorization: `Bearer ${loose}` }, claims: boundTo(loose) },
  }
  let cells = 0
  for (const [mode, ofMode] of Object.entries(CELLS)) {
    await switchTo(b.gateway, mode as DpopMode)
    for (const [kind, row] of Object.entries(ofMode)) {
      const { headers, claims } = tokens[kind as TokenKind]
      for (const [i, [expected, why]] of row.entries()) {
        const dpop = [null, b.sign({ ...claims }), b.sign({ ...claims, htm: 'PUT' })][i] ?? null
        const answered = await b.send(dpop, { headers })
        t.equal(answered.status, expected, `${mode}, ${kind}, ${PROOFS[i]}: ${why}`)
        cells += 1
      }
    }
  }
  t.equal(cells, 27)
})

await t.test(
  'D-35 docs/protocol.md#dpop-modes whose key a proof without a bound token must be by',
  async (t) => {
    const b = await bench(t)
    const stranger = proofSigner()
    const loose: string = (await b.token(null)).json.access_token
    const asBearer = { authorization: `Bearer ${loose}` }
    const reasons = async (signer: ProofSigner): Promise<unknown[]> => [
      (await b.send(proof(signer, b.claims()))).json?.reason,
      (await b.send(proof(signer, b.claims(boundTo(loose))), { headers: asBearer })).json?.reason,
    ]
    t.strictSame(await reasons(stranger), [undefined, undefined], 'optional, none registered: any key')
    await switchTo(b.gateway, 'required')
    t.strictSame(
      await reasons(stranger),
      ['proof_required', 'proof_required'],
      'required, none registered: no key',
    )
    await b.gateway.admin('POST', `/v1/admin/agents/${b.bot.id}/dpop-jwk`, b.signer.jwk)
    t.strictSame(await reasons(stranger), ['proof_invalid', 'proof_invalid'], 'required, another key')
    t.strictSame(await reasons(b.signer), [undefined, undefined], 'required, the registered key')
    await switchTo(b.gateway, 'optional')
    t.strictSame(await reasons(stranger), ['proof_invalid', 'proof_invalid'], 'optional, another key')
    t.strictSame(await reasons(b.signer), [undefined, undefined], 'optional, the registered key')
  },
)

await t.test(
  'docs/protocol.md#dpop-keys a key that was registered before is good for its grace, and not a moment longer',
  async (t) => {
    const b = await bench(t)
    const next = proofSigner()
    const register = (jwk: unknown, more = {}) =>
      b.gateway.admin('POST', `/v1/admin/agents/${b.bot.id}/dpop-jwk`, { jwk, ...more })
    await register(b.signer.jwk)
    t.equal((await register(next.jwk, { grace_hours: 1 })).status, 200)
    const status = async (signer: ProofSigner): Promise<number> =>
      (await b.send(proof(signer, b.claims()))).status
    t.strictSame([await status(next), await status(b.signer)], [200, 200])
    b.time.at += 3_600_000 - 1
    await b.renew()
    t.equal(await status(b.signer), 200, 'to the last millisecond')
    b.time.at += 1
    t.strictSame([await status(next), await status(b.signer)], [200, 401])
  },
)

await t.test('D-35 no_downgrade: who has registered a key never passes by mutual TLS alone', async (t) => {
  const b = await bench(t, {
    files: { '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\nno_downgrade: true\n' },
  })
  t.equal((await b.send(null)).status, 200, 'none registered')
  const loose: string = (await b.token(null)).json.access_token
  await b.gateway.admin('POST', `/v1/admin/agents/${b.bot.id}/dpop-jwk`, b.signer.jwk)
  for (const headers of [{}, { authorization: `Bearer ${loose}` }]) {
    const { status, json, headers: answer } = await b.send(null, { headers })
    t.strictSame([status, json.reason], [401, 'proof_required'])
    t.match(answer['www-authenticate'], /^DPoP algs=/)
  }
  t.equal(
    (await b.send(null, { method: 'GET', path: '/v1/models' })).status,
    401,
    'nor at a door without a capability',
  )
  t.equal((await b.send(b.sign())).status, 200, 'with its proof it does')
  t.equal(b.gateway.upstream.seen.filter(({ url }) => url === DOOR).length, 2)
})
