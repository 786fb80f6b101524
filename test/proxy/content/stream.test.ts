import { once } from 'node:events'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import t from 'tap'
import { hangupFromSignal } from '../../../plugins/call-authority.ts'
import { type JudgedMessage, openContentJudge } from '../../../plugins/content/judge.ts'
import { contentOptions } from '../../../plugins/content/options.ts'
import { judgedSource } from '../../../proxy/content/judged-source.ts'
import { ContentCut, JudgedStream } from '../../../proxy/content/judged-stream.ts'
import { SAMPLE_SECRETS, sampleSecret } from '../../support/content/secrets.ts'
import { DELTAS, type DeltaDialect, events } from '../../support/content/streams.ts'

const MESSAGE: JudgedMessage = {
  ...{ place: 'response', isJson: true, requestId: 'req_1', client: null, model: 'm', tool: null },
  principal: { id: 'acme::bot', type: 'agent' },
  hangup: hangupFromSignal(new AbortController().signal),
}
const judge = await openContentJudge(contentOptions.parse({}))
t.teardown(() => judge.close())

/** Leads chunks through a judged stream. Returns what went on, and the verdict. */
async function passed(chunks: readonly Buffer[], enforces = true) {
  const stream = new JudgedStream({ judge, message: MESSAGE, enforces, held: null })
  const source = judgedSource(Readable.from(chunks, { objectMode: false }), stream)
  const seen: Buffer[] = []
  source.on('data', (chunk: Buffer) => void seen.push(chunk))
  const error = await new Promise<Error | null>((resolve) =>
    source.once('close', () => resolve(source.errored)),
  )
  return { bytes: Buffer.concat(seen), error, verdict: stream.judgement.verdict }
}

/** All that may be told of a text before a secret: at most the first letters of a beginning. */
const TOLD = /^It is (?:aws_|https:\/\/)?[^ ]{0,2}$/

const characters = (text: string): readonly string[] => Array.from(text)

await t.test('a secret is found in each dialect, one character of it in each event', async (t) => {
  for (const dialect of DELTAS)
    for (const { rule, text } of SAMPLE_SECRETS) {
      const pieces = [...characters(`It is ${text}`), '.\n', 'Keep it.']
      const { bytes, error, verdict } = await passed(events(dialect, pieces))
      const name = `${dialect.name} ${rule}`
      t.ok(error instanceof ContentCut, name)
      t.match(verdict, { verdict: 'refuse', findings: [{ rule, where: 'stream' }] }, name)
      // A word before it is none of the secret.
      t.match(dialect.read(bytes), TOLD, `${name}: only what is before it went on`)
    }
})

await t.test('a secret at the end of a text is found when the text ends', async (t) => {
  for (const dialect of DELTAS) {
    const { error } = await passed(events(dialect, ['It is ', ...characters(sampleSecret('GITHUB_TOKEN'))]))
    t.ok(error instanceof ContentCut, dialect.name)
  }
})

await t.test('a secret of which pieces of other texts and pings stand between is found', async (t) => {
  const [dialect] = DELTAS as readonly [DeltaDialect]
  const secret = sampleSecret('GITHUB_TOKEN')
  const chunks = characters(`${secret} `).flatMap((one) => [
    ...dialect.delta(one, 0),
    Buffer.from(': ping\n\n'),
    ...dialect.delta('other text ', 1),
  ])
  t.ok((await passed(chunks)).error instanceof ContentCut)
})

await t.test("a secret in escapes of a tool's arguments is found, cut anywhere", async (t) => {
  const written = JSON.stringify({
    key: sampleSecret('PrivateKey'),
    and: sampleSecret('GITHUB_TOKEN'),
  }).replace('ghp_', '\\u0067hp_')
  for (const dialect of DELTAS) {
    const { error } = await passed(events(dialect, characters(written)))
    t.ok(error instanceof ContentCut, dialect.name)
  }
})

const PROSE =
  'The sk-learn package and ghp_ prefixes; risk-free eyJ words. -----BEGIN CERTIFICATE----- MII -----END CERTIFICATE----- path C:\\new\\u12 secret access keys, hf_ and AKIA.\n'

await t.test('other streams go on byte for byte, however they are cut', async (t) => {
  for (const dialect of DELTAS) {
    const whole = Buffer.concat(events(dialect, characters(PROSE)))
    for (const size of [1, 7, 100, 5_000, whole.length]) {
      const chunks = Array.from({ length: Math.ceil(whole.length / size) }, (_, n) =>
        whole.subarray(n * size, (n + 1) * size),
      )
      const { bytes, error, verdict } = await passed(chunks)
      t.equal(error, null)
      t.ok(bytes.equals(whole), `${dialect.name} in pieces of ${size}`)
      t.match(verdict, { verdict: 'pass', findings: [] })
    }
  }
})

await t.test('an event is held back only while its end may begin a secret', async (t) => {
  const [dialect] = DELTAS as readonly [DeltaDialect]
  const stream = new JudgedStream({ judge, message: MESSAGE, enforces: true, held: null })
  const source = new Readable({ read: () => {} })
  judgedSource(source, stream)
  let seen = ''
  stream.on('data', (chunk: Buffer) => {
    seen += dialect.read(chunk)
  })
  const tells = async (piece: string, wanted: string, why = piece): Promise<void> => {
    for (const event of dialect.delta(piece, 0)) source.push(event)
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
    // What may be a secret is judged on a thread.
    while (seen.length < wanted.length) await once(stream, 'data')
    t.equal(seen, wanted, why)
    seen = ''
  }
  await tells('hello', 'hello')
  await tells(' gh', ' gh')
  await tells('p', '', 'it may begin ghp_')
  await tells('s ', 'ps ')
  await tells(' ghp_', '', 'it has begun')
  await tells('abc', '')
  await tells(' and', ' ghp_abc and', 'it has ended')
  source.push(null)
  t.equal((await buffer(stream)).length, 0)
})

await t.test('what only watches holds nothing back and cuts nothing', async (t) => {
  for (const dialect of DELTAS) {
    const chunks = events(dialect, characters(`It is ${sampleSecret('GITHUB_TOKEN')}.`))
    const { bytes, error, verdict } = await passed(chunks, false)
    t.equal(error, null)
    t.ok(bytes.equals(Buffer.concat(chunks)))
    t.match(verdict, { verdict: 'refuse', findings: [{ rule: 'GITHUB_TOKEN', where: 'stream' }] })
  }
})
