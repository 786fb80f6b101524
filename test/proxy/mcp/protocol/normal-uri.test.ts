import { posix } from 'node:path'
import t from 'tap'
import { hasDotSegment, uriFault } from '../../../../proxy/mcp/protocol/normal-uri.ts'

// What honest servers list.
const NORMAL = [
  'file:///data/a.txt',
  'file:///c:/Users/a',
  'file:///c%3A/Users/a',
  'file:///data/a%20b/%C3%9C.txt',
  'file:///data/...',
  'file:///data/.hidden/a..b',
  'file://server/share/a',
  'https://example.com',
  'https://example.com/a//b?x=1&y=a/b#c',
  'https://example.com/a%2Fb',
  'http://127.0.0.1:8080/x',
  'memo://insights',
  'test://static/resource/1',
  'demo://resource/dynamic/text/1',
  'greeting://Hello/World',
  'postgres://user:password@host/db/schema',
  'repo://owner/repo/contents/a%2Fb',
  'ui://widget/main.html',
  'urn:isbn:0451450523',
  'mailto:a@example.com',
  'note:///a',
  'git://a/b@c:d,e;f=g!$&()*+~',
  'x-scheme+1.0://a',
]

const OTHER = [
  'FILE:///etc/shadow',
  'File:///etc/shadow',
  'file:/etc/shadow',
  'file:etc/shadow',
  'file:',
  'file://',
  'file:\\\\\\etc\\shadow',
  'file://localhost/etc/shadow',
  'file://LOCALHOST/etc/shadow',
  'file:////etc/shadow',
  'file:///data//etc/shadow',
  'file:///data/../etc/shadow',
  'file:///data/./a',
  'file:///data/%2e%2e/etc/shadow',
  'file:///data/%2E./etc/shadow',
  'file:///data/..%2fetc/shadow',
  'file:///data/..%2Fetc/shadow',
  'file:///data/..%5Cetc/shadow',
  'file:///data/%252e%252e/etc/shadow',
  'file:///data/..%252Fetc/shadow',
  'file:///data/%25252e%25252e/etc/shadow',
  'file:///data/..;x/etc/shadow',
  'file:///data/a?/../../etc/shadow',
  'file:///data/a#/../../etc/shadow',
  'file:///data/a\\..\\..\\etc\\shadow',
  'file:///d%61ta/a',
  'file:///data/a%2Dtxt',
  'file:///data/a%7Eb',
  'file:///data/%c3%9c',
  'file:///data/a%',
  'file:///data/a%2',
  'file:///data/a%zz',
  'file:///data/a%00.txt',
  'file:///data/Ü',
  'file:///data/a b',
  'file:///da\tta/a',
  'file:///data/a\n',
  ' file:///data/a',
  'file:///data/a ',
  'file:///C|/a',
  'HTTPS://example.com/',
  'https://EXAMPLE.com/',
  'https://example.com:443/',
  'https://0x7f.1/',
  'https://ex%61mple.com/',
  'https://example.com/a/../b',
  'https:example.com/',
  'https:\\\\example.com/',
  'a://h/../x',
  'a:b/../c',
  'a:..',
  'urn:x/%2e%2e/y',
  '/etc/shadow',
  '../etc/shadow',
  '//host/a',
  'a.txt',
  '',
  ':',
]

t.test(
  'H1c: a URI in its normal form is one for every reader, and each other spelling is refused',
  async (t) => {
    for (const uri of NORMAL) t.equal(uriFault(uri), null, uri)
    for (const uri of OTHER) t.type(uriFault(uri), 'string', JSON.stringify(uri))
  },
)

t.test('H1c: what passes stays below its prefix, for a reader that decodes and resolves it', async (t) => {
  const parts = [
    '..',
    '.',
    '%2e',
    '%2E',
    '%252e',
    '/',
    '\\',
    '%2f',
    '%5C',
    '%252F',
    ';',
    '?',
    '#',
    'a',
    '%00',
    '//',
  ]
  let passed = 0
  // Every text of three parts, and one of four in three.
  for (const [index, text] of combined(parts, 3).entries()) {
    const uri = `file:///data/${text}${index % 3 === 0 ? 'x' : ''}`
    if (uriFault(uri) !== null) continue
    passed += 1
    let path = uri.replace('file://', '')
    for (let decoded = ''; decoded !== path; ) {
      decoded = path
      path = decodeURIComponent(path)
      t.match(posix.normalize(path.replaceAll('\\', '/')), /^\/data\//, uri)
    }
  }
  t.ok(passed > 50, `${passed} pass`)
})

t.test('H1c: long texts are judged at once', async (t) => {
  for (const part of ['%25', '..a/', '%2e', '/..', '%2525', '{', ';']) {
    const uri = `file:///${part.repeat(8_192 / part.length)}`
    const before = process.cpuUsage().user
    uriFault(uri)
    hasDotSegment(uri)
    t.ok(process.cpuUsage().user - before < 20_000, part)
  }
})

const combined = (parts: readonly string[], length: number): readonly string[] =>
  length === 0 ? [''] : combined(parts, length - 1).flatMap((text) => parts.map((part) => text + part))
