import t, { type Test } from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import { tokenVerifier } from '../../../plugins/dpop/access-token.ts'
import { openTokenKeys, TOKEN_LIFE_MAX_S, type TokenKeys } from '../../../proxy/auth/token-keys.ts'
import { jwsOf } from '../../support/auth/bench.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { proofSigner } from '../../support/dpop.ts'
import { refused } from '../../support/refused.ts'

interface Replicas {
  readonly time: { at: number }
  readonly one: TokenKeys
  readonly two: TokenKeys
}

/** Two sets of keys on one database, as two replicas would have them. */
async function replicas(t: Test): Promise<Replicas> {
  const time = { at: Date.UTC(2026, 0, 1) }
  const database = await openDatabase(await databaseUrl(t.testdir()))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const sources = { database, ledger, passphrase: 'correct horse', clock: () => time.at }
  return { time, one: await openTokenKeys(sources), two: await openTokenKeys(sources) }
}

const rotated = (kid: string) => serviceEntry('admin.signing_key_rotated', 'success', { kid }, 0, '')

await t.test('§5.2 the first boot makes a key, and the next one finds it', async (t) => {
  const { one, two } = await replicas(t)
  const { kid } = await one.signer()
  t.equal((await two.signer()).kid, kid)
  t.ok(await two.verifier(kid))
})

await t.test('§5.2 a key that another replica has made just now verifies at once', async (t) => {
  const { time, one, two } = await replicas(t)
  time.at += 2_000
  const kid = await one.rotate(rotated)
  t.ok(await two.verifier(kid), 'although its list is believed for half a minute')
  t.equal(await two.verifier('of nobody'), undefined)
})

const hears =
  ENGINE === 'postgres' && 'each replica hears of a rotation there: test/proxy/replicas-shared.test.ts'
await t.test(
  '§5.2 what another replica still signs with a retired key verifies to its end',
  { skip: hears },
  async (t) => {
    const { time, one, two } = await replicas(t)
    const { kid } = await two.signer()
    await one.rotate(rotated)
    time.at += 30_000
    t.equal((await two.signer()).kid, kid, 'it does not know yet')
    time.at += TOKEN_LIFE_MAX_S * 1000
    t.ok(await one.verifier(kid))
    time.at += 30_001
    t.equal(await one.verifier(kid), undefined, 'and is forgotten with the next reading')
    t.equal((await two.signer()).kid, (await one.signer()).kid)
  },
)

await t.test('a key that cannot be read is a fault of ours, and not the token’s', async (t) => {
  const signer = proofSigner()
  const verifier = tokenVerifier({
    issuer: () => 'https://gateway.test',
    baseUrls: () => ['https://gateway.test'],
    key: () => Promise.reject(new Error('the database is gone')),
  })
  const token = jwsOf('{"alg":"ES256","typ":"at+jwt","kid":"k"}', '{"iss":"https://gateway.test"}', signer)
  await t.rejects(verifier.verify(token, 0), new Error('the database is gone'))
  await t.rejects(verifier.verify(`${token}x`, 0), refused('token_invalid'))
})
