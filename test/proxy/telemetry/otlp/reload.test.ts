import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { telemetryOptions } from '../../../../proxy/telemetry/otlp/options.ts'
import { certifiedUser } from '../../../support/certs/certified.ts'
import { CHAT, testGateway } from '../../../support/gateway.ts'
import { attributesOf, testCollector } from '../../../support/telemetry/collector.ts'

await t.test(
  'a reload puts a collector in force, and takes it away; one that hangs delays nothing',
  async (t) => {
    const [collector, gateway] = await Promise.all([testCollector(t), testGateway(t)])
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const { who: alice, ref } = await certifiedUser(t, gateway, { user_name: 'alice.arnold' })
    const chat = (who = bot) => gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
    const file = join(gateway.pluginsDir, '80-telemetry.yaml')
    t.equal((await chat()).status, 200)

    await writeFile(file, `plugin: telemetry\nendpoint: ${collector.url}\nsignals: [traces, logs]\n`)
    t.equal(await gateway.reload(), true)
    t.equal((await chat(alice)).status, 200)
    await collector.until(() => collector.spans().length > 0)
    const [span] = collector.spans()
    t.equal(attributesOf(span)['enduser.id'], ref, 'a user is the pseudonym of the ledger')
    t.notMatch(collector.received.map(({ text }) => text).join(), /alice/)

    collector.answer = () => {}
    const answers = await Promise.all(Array.from({ length: 40 }, () => chat()))
    t.same([...new Set(answers.map((one) => one.status))], [200], 'while the collector hangs')

    await rm(file)
    t.equal(await gateway.reload(), true)
    t.equal((await chat()).status, 200)
    await gateway.close()
    const calls = gateway.log.filter(({ path, status }) => path === '/v1/chat/completions' && status === 200)
    const traced = calls.map(({ trace_id: id }) => id !== undefined)
    t.same(traced, [false, ...Array.from({ length: 41 }, () => true), false], 'off, on, and off again')
  },
)

t.test('options that cannot be are refused in a sentence', (t) => {
  const endpoint = 'https://collector.example:4318'
  const parsed = telemetryOptions.parse({ endpoint })
  t.same(parsed, { endpoint, headers: {}, signals: ['traces', 'metrics'], sample: 'parent', resource: {} })
  for (const [options, sentence] of [
    [{}, /endpoint|expected string/i],
    [{ endpoint: 'http://collector.example:4318' }, /must be an https URL/],
    [{ endpoint: 'https://a:b@collector.example' }, /without credentials/],
    [{ endpoint, signals: [] }, /Too small|at least/i],
    [{ endpoint, signals: ['traces', 'traces'] }, /names one twice/],
    [{ endpoint, sample: 0.001 }, /must be parent, all, or a number from 0.01 to 1/],
    [{ endpoint, sample: 'half' }, /sample/],
    [{ endpoint, headers: { 'content-type': 'text/plain' } }, /that the gateway sets itself/],
    [{ endpoint, headers: { 'x-key': 'a\nb' } }, /must be printable ASCII/],
    [{ endpoint, resource: { 'Bad name': 'x' } }, /must be the name of an attribute/],
    [{ endpoint, protocol: 'grpc' }, /protocol|Unrecognized/],
  ] as const) {
    const { success, error } = telemetryOptions.safeParse(options)
    t.notOk(success)
    t.match(String(error), sentence, JSON.stringify(options))
  }
  t.end()
})
