import t, { type Test } from 'tap'
import { SAID } from '../sdk.ts'
import { DENIED, type Through, through, times } from '../through.ts'
import { type Talk, type Talked, talkAlone } from './talk.ts'

/**
 * Tests one SDK by the helper's fetch, by the preload and by the sidecar: all that its APIs say, at once and
 * streamed, then a refusal, and the ledger on each of these calls. `name`: of the module that exports `talk`.
 * `apis`: those that it asks.
 */
export async function provesEachCall(name: string, talk: Talk, apis: readonly string[]): Promise<void> {
  const ways: readonly [how: string, ask: (way: Through) => Promise<readonly Talked[]>][] = [
    ["with the helper's fetch", ({ gateway, fetch }) => talk(gateway.url, fetch)],
    [
      'with --import sallyport/register and no change',
      ({ gateway, directory }) => talkAlone(name, gateway.url, directory),
    ],
    ['through the sidecar', ({ sidecar }) => talkAlone(name, sidecar)],
  ]
  for (const [how, ask] of ways) {
    await t.test(`§5.2 ${name} ${how}: an answer, a stream and a refusal, each proven by DPoP`, async (t) => {
      const way = await through(t)
      heard(t, await ask(way), apis)
      await way.deny()
      await t.rejects(ask(way), { message: new RegExp(DENIED) }, 'it shows why it was denied')
      const asked = times(2 * apis.length, 'allowed')
      t.same(await way.proven(), [...asked, 'denied'], 'and does not try again')
    })
  }
}

/** Whether each API gave the whole answer, at once and piece by piece. */
function heard(t: Test, talked: readonly Talked[], apis: readonly string[]): void {
  t.same(
    talked.map(({ api, text, pieces }) => [api, text, pieces.join('')]),
    apis.map((api) => [api, SAID, SAID]),
  )
  for (const { api, pieces } of talked) t.ok(pieces.filter(Boolean).length > 5, `${api}: piece by piece`)
}
