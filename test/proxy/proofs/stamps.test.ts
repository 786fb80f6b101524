import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { without } from '../../support/certs/openssl.ts'
import { past } from '../../support/db/raw.ts'
import { CHAT, type Identity, scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { anchored, flipped, serveTsa, stampRoot, storedStamps, type Tsa, testTsa } from '../../support/tsa.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'
import { allVerifiers, withoutPython } from '../../support/verifiers.ts'
import { changed } from '../../support/zips.ts'

const sallyport = verbsInTurn(t)

t.setTimeout(120_000)

const skip = withoutPython || without('openssl')
const verify = skip ? null : allVerifiers(t)

/** Makes a call, and resolves once its rows are sealed. */
async function called(gateway: TestGateway, who: Identity): Promise<void> {
  const { headers } = await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  const path = `/v1/audit/proofs/${String(headers['x-request-id'])}`
  await eventually(
    () => gateway.call(who, 'GET', path),
    ({ status, json: said }) => status === 200 && said.rows.length > 1,
  )
}

/** A gateway whose first checkpoint an authority has stamped, with calls behind it. */
async function stampedGateway(t: Test, tsa: Tsa) {
  const { url } = await serveTsa(t, tsa)
  const gateway = await testGateway(t, { files: anchored({ timestamp: url }) })
  const [first] = await eventually(
    () => storedStamps(gateway),
    (all) => all.length > 0,
  )
  if (!first) throw new Error('nothing was stamped')
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await called(gateway, bot)
  const key = (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()
  const directory = await scratch(t)
  const put = (name: string, bytes: string | Buffer): string => {
    writeFileSync(join(directory, name), bytes)
    return join(directory, name)
  }
  return { gateway, first, key, put }
}

const STAMPED = /^VERIFIED, STAMPED by Test TSA at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

await t.test(
  'a time stamp by an authority that is trusted shows in the last line, of a database and of a pack',
  { skip },
  async (t) => {
    if (!verify) return
    const tsa = await testTsa(t)
    const { gateway, first, key, put } = await stampedGateway(t, tsa)
    const by = ['--key', key, '--tsa', tsa.ca]
    const pack = put('pack.zip', (await gateway.admin('GET', '/v1/admin/audit/evidence')).bytes)
    const whole = await verify(pack, ...by)
    t.match(whole, { code: 0, last: STAMPED })
    t.match(whole.out, `1 time stamp by Test TSA, the last of the checkpoint of ${first.size} rows at `)
    const unasked = await verify(pack, '--key', key)
    t.match(unasked, { code: 0, last: 'VERIFIED' })
    t.match(unasked.out, /^1 time stamp whose authority was not checked$/m)
    t.match(
      await verify(pack, '--tsa', tsa.ca),
      { code: 0, last: 'CONSISTENT, NOT WITNESSED' },
      'it stamps any log',
    )

    await gateway.close(0)
    const { databaseUrl } = gateway.settings
    const own = await sallyport(['verify', databaseUrl, ...by])
    t.match(own, { code: 0, out: /\nVERIFIED, STAMPED by Test TSA at \S+\n$/ })
    t.match(await sallyport(['verify', databaseUrl, '--key', key]), {
      code: 0,
      out: /\n1 time stamp whose authority was not checked\n(.*\n)*VERIFIED, SEEN by nobody outside\n$/,
    })
  },
)

await t.test(
  'a time stamp that does not hold is exit code 3, and is named by its checkpoint',
  { skip },
  async (t) => {
    if (!verify) return
    const tsa = await testTsa(t)
    const { gateway, first, key, put } = await stampedGateway(t, tsa)
    const pack = put('pack.zip', (await gateway.admin('GET', '/v1/admin/audit/evidence')).bytes)
    await gateway.close(0)
    const { databaseUrl } = gateway.settings
    const honest = Buffer.from(first.proof, 'base64')
    const moved = tsa.over('another text')
    const store = (proof: string) =>
      past(databaseUrl, `update audit_cosignatures set proof = '${proof}' where anchor like 'timestamp:%'`)
    const cases: readonly (readonly [string, Buffer, readonly string[], RegExp])[] = [
      ['another text', moved, ['--tsa', tsa.ca], /is of another text/],
      ['another text, nobody trusted', moved, [], /is of another text/],
      [
        'another signature',
        flipped(honest, (stamp) => stamp.signer.signature),
        ['--tsa', tsa.ca],
        /has a signature/,
      ],
    ]
    for (const [index, [name, stamp, cas, said]] of cases.entries()) {
      const file = put(`${index}.tsr`, stamp)
      const forged = put(`forged-${index}.zip`, '')
      changed(pack, forged, `files["anchors/${first.size}.tsr"] = open("${file}", "rb").read(); resum()`)
      await store(stamp.toString('base64'))
      for (const { code, out } of [
        await verify(forged, '--key', key, ...cas),
        await sallyport(['verify', databaseUrl, '--key', key, ...cas]),
      ]) {
        t.equal(code, 3, name)
        t.match(out, said, name)
        t.match(out, `the time stamp of the checkpoint of ${first.size} rows`)
      }
    }
    const lone = put('lone.zip', '')
    changed(pack, lone, `files["anchors/999999.tsr"] = files.pop("anchors/${first.size}.tsr"); resum()`)
    t.match(await verify(lone, '--key', key), { code: 3, out: /but no such checkpoint/ })
    await store(first.proof)
    const trusting = ['verify', databaseUrl, '--tsa', tsa.ca]
    t.match(await sallyport(trusting), { code: 0 })
    const again = `select tree, max(size), 'timestamp:again', '${first.proof}', '' from audit_checkpoints group by tree`
    await past(databaseUrl, `insert into audit_cosignatures (tree, size, anchor, proof, at) ${again}`)
    t.match(await sallyport(trusting), { code: 3, out: /is of another text/ }, 'copied to another checkpoint')
  },
)

await t.test(
  'stamps of two authorities over one checkpoint are both in a pack, and each --tsa asks for its own',
  { skip },
  async (t) => {
    if (!verify) return
    const [one, two] = [
      await testTsa(t),
      await testTsa(t, { name: 'Second TSA', root: await stampRoot('Second') }),
    ]
    const [first, second] = [await serveTsa(t, one), await serveTsa(t, two)]
    const gateway = await testGateway(t, {
      files: anchored({ timestamp: first.url }, { timestamp: second.url }),
    })
    const both = await eventually(
      () => storedStamps(gateway),
      (all) => all.length > 1,
    )
    t.equal(new Set(both.map(({ size }) => size)).size, 1)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await called(gateway, bot)
    const pack = join(await scratch(t), 'pack.zip')
    writeFileSync(pack, (await gateway.admin('GET', '/v1/admin/audit/evidence')).bytes)
    const key = (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()
    const all = await verify(pack, '--key', key, '--tsa', one.ca, '--tsa', two.ca)
    t.match(all, {
      code: 0,
      last: /^VERIFIED, STAMPED by (Test|Second) TSA at \S+, (Test|Second) TSA at \S+$/,
    })
    const own = await verify(pack, '--key', key, '--tsa', two.ca)
    t.match(own, { code: 0, last: /^VERIFIED, STAMPED by Second TSA at \S+$/ })
    t.match(own.out, /^1 time stamp whose authority was not checked$/m)
    const listed = spawnSync('python3', ['-m', 'zipfile', '-l', pack], { encoding: 'utf8' }).stdout
    t.match(listed, /anchors\/\d+-2\.tsr/)
  },
)
