import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t from 'tap'
import { TraceSearch } from '../../../plugins/secrets/trace-search.ts'
import {
  isReadableText,
  quotesSecret,
  quotesSecretSteps,
  SecretScreen,
  secretTraces,
} from '../../../plugins/secrets/traces.ts'
import { BROKEN_SPELLINGS, SPELLINGS } from '../../support/spellings.ts'

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

for (const [writer, spell] of Object.entries(BROKEN_SPELLINGS)) {
  await t.test(`H1a a secret is found as ${writer}, also in a long text`, (t) => {
    const text = `{"a":"${spell(SECRET)}"}`
    t.ok(quotesSecret(TRACES, Buffer.from(text)), text)
    for (const before of [65_000, 65_500, 65_536, 130_000]) {
      const work = quotesSecretSteps(TRACES, Buffer.from(`${' lorem'.repeat(before / 6)}${text}`))
      let step = work.next()
      while (!step.done) step = work.next()
      t.ok(step.value, `after ${before} bytes`)
    }
    t.notOk(quotesSecret(TRACES, Buffer.from(`{"a":"${spell(SECRET.slice(1, -1))}"}`)), 'and nothing else is')
    t.end()
  })
}

await t.test('H1a what cannot be read is no text: two bytes a character, and what is compressed', (t) => {
  const text = JSON.stringify({ error: { message: SECRET } })
  const unreadable = {
    utf16le: Buffer.from(text, 'utf16le'),
    utf16be: Buffer.from(text, 'utf16le').swap16(),
    utf32: Buffer.from(text.replaceAll(/./gs, '\0\0\0$&')),
    gzip: gzipSync(text),
    deflate: deflateSync(text),
    raw: deflateRawSync(text),
    brotli: brotliCompressSync(text),
    zstd: zstdCompressSync(text),
  }
  for (const [name, bytes] of Object.entries(unreadable)) {
    t.notOk(isReadableText(bytes, true), name)
    const screen = new SecretScreen(TRACES)
    t.equal(screen.push(bytes), null, `${name} does not pass`)
  }
  for (const fine of [text, '\ufeff{}', 'data: x\r\n\r\n', '\t{"a":"漢字"}', ''])
    t.ok(isReadableText(Buffer.from(fine), true), fine)
  t.ok(isReadableText(Buffer.from('{"a":"é"}', 'latin1'), true), 'a text of one byte a character is one')
  t.end()
})

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
      // Of this thread, and both together: the system guesses which part was which.
      const before = process.threadCpuUsage()
      done = work.next().done === true
      const { user, system } = process.threadCpuUsage(before)
      worst = Math.max(worst, user + system)
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

await t.test(
  'H1a a long text is read in pieces as it is in one, and many traces are found as one by one',
  (t) => {
    let state = 7
    const random = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff
      return Math.floor((state / 0x80000000) * below)
    }
    const inSteps = (text: Buffer): boolean => {
      const work = quotesSecretSteps(TRACES, text)
      let step = work.next()
      while (!step.done) step = work.next()
      return step.value
    }
    const spells = [...Object.values(SPELLINGS), ...Object.values(BROKEN_SPELLINGS)]
    const noise = [
      '\\',
      '%',
      '&',
      '=',
      ' ',
      '\n',
      '\\\\',
      '%25',
      '&amp;',
      '\\u005c',
      '\\n',
      '"',
      'a',
      ';',
      '3D',
      '=\r\n',
    ]
    let found = 0
    for (let count = 0; count < 3_000; count += 1) {
      let text = spells[count % spells.length]?.(SECRET) ?? ''
      for (let changes = random(4); changes > 0; changes -= 1) {
        const at = random(text.length + 1)
        text = text.slice(0, at) + (noise[random(noise.length)] ?? '') + text.slice(at + random(2))
      }
      const front = Buffer.from('ab '.repeat(30_000)).subarray(0, 65_536 - random(Math.min(text.length, 400)))
      const bytes = Buffer.concat([front, Buffer.from(text), Buffer.from(random(2) === 0 ? '' : ' end = 1')])
      const isFound = quotesSecret(TRACES, bytes)
      if (isFound) found += 1
      if (inSteps(bytes) !== isFound) t.equal(inSteps(bytes), isFound, text)
      const isSeen = TRACES.some((trace) => bytes.includes(Buffer.from(trace, 'latin1')))
      if (TraceSearch.of(TRACES).isIn(bytes) !== isSeen) t.fail(`a trace: ${text}`)
    }
    t.ok(found > 1_000 && found < 3_000, `${found} found`)
    const apart = Buffer.from(SECRET.replaceAll(/./g, `$&${' '.repeat(20_000)}`))
    t.ok(quotesSecret(TRACES, apart) && inSteps(apart), 'however many blanks are between')
    t.end()
  },
)
