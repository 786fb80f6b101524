import t from 'tap'
import { FetchFailure, firstHop, nextHop, parseAllowedHosts } from '../../../../proxy/mcp/http-get/hop.ts'

const ANY = parseAllowedHosts([])

function reason(judge: () => URL): string {
  try {
    return judge().href
  } catch (error) {
    if (error instanceof FetchFailure) return error.reason
    throw error
  }
}

await t.test(
  'docs/protocol.md#http-get: with an empty list any public host is fetched, on the ports 80 and 443',
  (t) => {
    const accepted = [
      'https://example.com/',
      'http://example.com/a?b=c&d',
      'https://example.com',
      'https://example.com?a=%41',
      'http://example.com:443/',
      'https://example.com:80/',
      'https://xn--bcher-kva.example/ü',
      'https://8.8.8.8/',
      'https://[2606:4700::1111]/',
    ]
    for (const url of accepted)
      t.equal(
        reason(() => firstHop(url, ANY)),
        new URL(url).href,
        url,
      )
    for (const path of ['a b', 'a\tb', 'a\nb', 'a\\b', 'a\x7fb', 'a\0b', ' ']) {
      t.equal(
        reason(() => firstHop(`https://example.com/${path}`, ANY)),
        'url_refused',
        JSON.stringify(path),
      )
    }
    t.equal(
      reason(() => firstHop('https://example.com:8443/', ANY)),
      'port_not_allowed',
    )
    t.equal(
      reason(() => firstHop('https://example.com:0/', ANY)),
      'port_not_allowed',
    )
    t.equal(reason(() => firstHop(`https://example.com/${'a'.repeat(2028)}`, ANY)).length, 2048)
    t.equal(
      reason(() => firstHop(`https://example.com/${'a'.repeat(2029)}`, ANY)),
      'url_refused',
    )
    t.end()
  },
)

await t.test('H1c: a path is written as the server resolves it', (t) => {
  for (const path of ['/a/../b', '/a/..', '/./a', '/%2e%2e/a', '/a/..%2fb', '/a/%252E%252e/b', '/a/..;/b']) {
    t.equal(
      reason(() => firstHop(`https://example.com${path}?q`, ANY)),
      'url_refused',
      path,
    )
  }
  for (const path of ['/a..b/...', '/.well-known/a', '/a?b=../c', '/a#../b', '/a%2Fb/%7Ec', '/ü/%c3%bc']) {
    const url = `https://example.com${path}`
    t.equal(
      reason(() => firstHop(url, ANY)),
      new URL(url).href,
    )
  }
  for (const path of ['/%61dmin', '/a/%5A', '/%30', '/a%2Fb/%6f']) {
    t.equal(
      reason(() => firstHop(`https://example.com${path}`, ANY)),
      'url_refused',
      path,
    )
  }
  for (const url of ['HTTPS://example.com/', 'https://EXAMPLE.com/', 'https://example.com:443/']) {
    t.throws(() => firstHop(url, ANY), { message: /does not begin with https:\/\/example\.com, / }, url)
  }
  const current = new URL('https://example.com/a')
  for (const location of ['https://example.com/b/../c', 'HTTPS://Example.com:443/c']) {
    t.equal(
      reason(() => nextHop(current, location, ANY)),
      'https://example.com/c',
      'a redirect is the server’s own word, which nobody has judged as it is written',
    )
  }
  t.end()
})

await t.test('docs/protocol.md#http-get: where the operator lists hosts, nothing else is fetched', (t) => {
  const allowed = parseAllowedHosts(['example.com', '*.example.org', 'api.example.net:8443'])
  const cases: readonly (readonly [string, string])[] = [
    ['https://example.com/', 'https://example.com/'],
    ['https://a.example.org/', 'https://a.example.org/'],
    ['https://a.b.example.org/', 'https://a.b.example.org/'],
    ['https://api.example.net:8443/', 'https://api.example.net:8443/'],
    ['https://www.example.com/', 'host_not_allowed'],
    ['https://example.org/', 'host_not_allowed'],
    ['https://evilexample.org/', 'host_not_allowed'],
    ['https://example.org.evil.com/', 'host_not_allowed'],
    ['https://example.com:8443/', 'port_not_allowed'],
    ['https://api.example.net/', 'port_not_allowed'],
  ]
  for (const [url, expected] of cases)
    t.equal(
      reason(() => firstHop(url, allowed)),
      expected,
      url,
    )
  t.end()
})

await t.test(
  'docs/protocol.md#http-get: a list entry that cannot be read stops the boot and is named',
  (t) => {
    for (const entry of [
      '',
      '*',
      '*.',
      'https://example.com',
      'Example.com',
      'a b',
      'a..b',
      'a:0',
      'a:65536',
      'a:b',
    ]) {
      t.throws(
        () => parseAllowedHosts([entry]),
        new RegExp(`^allowed_hosts: "${entry.replaceAll('*', '\\*')}" `),
        entry,
      )
    }
    t.end()
  },
)

await t.test('threat 19: a redirect stays where it was, or is judged anew', (t) => {
  const current = new URL('https://example.com/a/b?c')
  const allowed = parseAllowedHosts(['example.com', '*.example.org'])
  const cases: readonly (readonly [string, string])[] = [
    ['d', 'https://example.com/a/d'],
    ['/d?e', 'https://example.com/d?e'],
    ['?f', 'https://example.com/a/b?f'],
    ['', 'https://example.com/a/b?c'],
    ['../../../..', 'https://example.com/'],
    ['//a.example.org/x', 'https://a.example.org/x'],
    ['https://a.example.org/', 'https://a.example.org/'],
    ['http://example.com/', 'redirect_downgrade'],
    ['http://a.example.org/', 'redirect_downgrade'],
    ['https://other.example/', 'host_not_allowed'],
    ['//other.example/', 'host_not_allowed'],
    ['//example.com:8443/', 'port_not_allowed'],
    ['///other.example/', 'url_refused'],
    ['/\\other.example/', 'url_refused'],
    ['\\\\other.example/', 'url_refused'],
    ['/\t/other.example/', 'url_refused'],
    ['https:other.example', 'url_refused'],
    ['https:/other.example', 'url_refused'],
    ['https://user@example.com/', 'url_refused'],
    ['javascript:alert(1)', 'url_refused'],
    ['//localhost/', 'host_refused'],
    [`/${'a'.repeat(2048)}`, 'url_refused'],
  ]
  for (const [location, expected] of cases) {
    t.equal(
      reason(() => nextHop(current, location, allowed)),
      expected,
      JSON.stringify(location),
    )
  }
  t.equal(
    reason(() => nextHop(new URL('http://example.com/'), 'https://example.com/', ANY)),
    'https://example.com/',
  )
  t.end()
})
