import t from 'tap'
import {
  quotesSecret,
  quotesSecretSteps,
  SecretScreen,
  secretTraces,
} from '../../../plugins/secrets/traces.ts'
import { SPELLINGS } from '../../support/spellings.ts'

const SECRET = 'sk-proj-a/b+c=d&e<f>"g\'==0123456789'
const TRACES = secretTraces([SECRET])
const MIB = 1024 * 1024

/**
 * Screens a text that comes in pieces of `size` bytes. Returns what passed. `whole`: false if it was broken
 * off.
 */
function screened(text: string, size: number): { passed: string; whole: boolean } {
  const screen = new SecretScreen(TRACES)
  const bytes = Buffer.from(text)
  let passed = ''
  for (let at = 0; at < bytes.length; at += size) {
    const piece = screen.push(bytes.subarray(at, at + size))
    if (piece === null) return { passed, whole: false }
    passed += piece.toString()
  }
  return { passed: passed + screen.flush().toString(), whole: true }
}

for (const [writer, spell] of Object.entries(SPELLINGS)) {
  await t.test(`H1a a secret is found as ${writer} spells it, wherever the text is divided`, (t) => {
    const spelled = spell(SECRET)
    for (const text of [`{"a":"${spelled}"}`, `{"${spelled}":1}`, `x ${spelled} y`]) {
      t.ok(quotesSecret(TRACES, Buffer.from(text)), text)
      for (let size = 1; size <= text.length; size += 1) {
        const { whole, passed } = screened(text, size)
        if (whole) t.fail(`in pieces of ${size}: ${passed}`)
      }
      for (const size of [1, 2, 5, 16, 40]) {
        const { passed } = screened(text, size)
        t.notOk(
          quotesSecret(secretTraces([SECRET.slice(0, 6)]), Buffer.from(passed)),
          'nor does its beginning pass',
        )
      }
    }
    t.end()
  })
}

await t.test('H1a what quotes no secret passes byte for byte, in whatever pieces', (t) => {
  const near = [
    SECRET.slice(0, -1),
    SECRET.slice(1),
    JSON.stringify({ text: `${SECRET.slice(0, 20)}\n"\\` }),
    'C:\\users\\x \\u00 100% &amp &#x3',
    'sk-proj-'.repeat(40),
    Buffer.from(`Bearer ${SECRET.slice(0, -2)}`).toString('base64'),
    'naïve – 漢字 \\ud83d\\ude00',
  ]
  for (const text of near) {
    t.notOk(quotesSecret(TRACES, Buffer.from(text)), text)
    for (const size of [1, 2, 3, 7, 50, 1000]) {
      const { whole, passed } = screened(text, Math.max(size, 4))
      t.strictSame({ whole, passed }, { whole: true, passed }, text)
    }
    const screen = new SecretScreen(TRACES)
    const bytes = Buffer.from(text)
    const pieces = [...bytes].map((byte) => screen.push(Buffer.from([byte])) ?? Buffer.from('broken off'))
    t.equal(Buffer.concat([...pieces, screen.flush()]).toString(), text)
  }
  t.strictSame(secretTraces(['']), [], 'an empty key is no secret')
  t.notOk(quotesSecret([], Buffer.from('anything')))
  t.end()
})

await t.test('H1a no text holds the loop: the search is linear, and a long one is in steps', (t) => {
  for (const unit of ['\\', '\\u0073', '%25', '&#x3d;', '&#00', 'sk-proj-', 'lorem ipsum ']) {
    const text = Buffer.alloc(4 * MIB, unit)
    let worst = 0
    const work = quotesSecretSteps(TRACES, text)
    for (let done = false; !done; ) {
      const { user } = process.cpuUsage()
      done = work.next().done === true
      worst = Math.max(worst, process.cpuUsage().user - user)
    }
    t.ok(worst < 20_000, `${unit}: ${worst / 1000} ms of processor time in one step`)
  }
  t.end()
})

await t.test('H1a what is held back does not tell how a secret begins', (t) => {
  const passes = (text: string): number => new SecretScreen(TRACES).push(Buffer.from(text))?.length ?? -1
  for (let length = 1; length < SECRET.length; length += 1) {
    const right = SECRET.slice(0, length)
    const wrong = `${SECRET.slice(0, length - 1)}?`
    t.equal(passes(`some words, and ${right}`), passes(`some words, and ${wrong}`), right)
  }
  t.equal(passes('data: {"a":"b"}\n\n'), 17, 'a whole event is passed on at once')
  t.end()
})
