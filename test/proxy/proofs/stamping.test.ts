import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parseSignedCheckpoints } from '../../../db/ledger/tree/trusted.ts'
import { without } from '../../support/certs/openssl.ts'
import { CHAT, scratch, testGateway } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { anchored, flipped, serveTsa, storedStamps, testTsa } from '../../support/tsa.ts'

t.setTimeout(120_000)
const skip = without('openssl')

await t.test(
  'an authority is asked for one time stamp a minute, however many checkpoints there are',
  { skip },
  async (t) => {
    const tsa = await testTsa(t)
    const { url, asked } = await serveTsa(t, tsa)
    const path = join(await scratch(t), 'anchor')
    const gateway = await testGateway(t, { files: anchored({ timestamp: url }, { file: path }) })
    await eventually(
      () => storedStamps(gateway),
      (all) => all.length > 0,
    )
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const sizes = () => parseSignedCheckpoints(readFileSync(path, 'utf8')).length
    for (const more of [1, 2]) {
      const before = sizes()
      await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
      await eventually(sizes, (count) => count > before)
      t.ok(sizes() > before, `the file has checkpoint ${more} more`)
    }
    t.equal(asked.length, 1)
  },
)

await t.test('an anchor keeps no time stamp that its own certificate has not signed', { skip }, async (t) => {
  const tsa = await testTsa(t)
  const forging = await serveTsa(t, tsa, (reply) => flipped(reply, ({ signer: said }) => said.signature))
  const foreign = await serveTsa(t, tsa, () => tsa.over('another text'))
  const gateway = await testGateway(t, {
    files: anchored({ timestamp: forging.url }, { timestamp: foreign.url }),
  })
  const errors = await eventually(
    () =>
      gateway.log
        .filter(({ msg }) => msg === 'a checkpoint could not be anchored')
        .map(({ err }) => err.message),
    (all) => all.some((said) => /signature/.test(said)) && all.some((said) => /something else/.test(said)),
  )
  for (const said of ['has a signature that is not by its certificate', 'is of something else'])
    t.ok(
      errors.some((error) => error.startsWith(`its time stamp ${said}`)),
      said,
    )
  t.same(await storedStamps(gateway), [])
})
