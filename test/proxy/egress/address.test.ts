import fc from 'fast-check'
import t from 'tap'
import { addressRefusal, blockedAddresses, hostRefusal } from '../../../proxy/egress/address.ts'

/**
 * First and last address of each range of docs/threats.md#threat-19, then the nearest public neighbours it
 * must leave alone.
 */
const RANGES: readonly (readonly [range: string, inside: readonly string[], outside: readonly string[]])[] = [
  ['0/8', ['0.0.0.0', '0.255.255.255'], ['1.0.0.0']],
  ['100.64/10', ['100.64.0.0', '100.127.255.255'], ['100.63.255.255', '100.128.0.0']],
  ['169.254/16', ['169.254.0.0', '169.254.255.255'], ['169.253.255.255', '169.255.0.0']],
  ['192.0.0/24', ['192.0.0.0', '192.0.0.255'], ['191.255.255.255', '192.0.1.0']],
  ['192.0.2/24', ['192.0.2.0', '192.0.2.255'], ['192.0.1.255', '192.0.3.0']],
  ['192.88.99/24', ['192.88.99.0', '192.88.99.255'], ['192.88.98.255', '192.88.100.0']],
  ['198.18/15', ['198.18.0.0', '198.19.255.255'], ['198.17.255.255', '198.20.0.0']],
  ['198.51.100/24', ['198.51.100.0', '198.51.100.255'], ['198.51.99.255', '198.51.101.0']],
  ['203.0.113/24', ['203.0.113.0', '203.0.113.255'], ['203.0.112.255', '203.0.114.0']],
  ['224/4', ['224.0.0.0', '239.255.255.255'], ['223.255.255.255']],
  ['240/4', ['240.0.0.0', '255.255.255.254'], []],
  ['broadcast', ['255.255.255.255'], []],
  ['::', ['::'], []],
  ['::/96, compatible', ['::2', '::8.8.8.8', '::ffff:ffff'], []],
  ['::ffff:0:0/96, mapped', ['::ffff:0:0', '::ffff:8.8.8.8', '::ffff:127.0.0.1', '::ffff:ffff:ffff'], []],
  ['64:ff9b::/96', ['64:ff9b::', '64:ff9b::ffff:ffff'], []],
  ['64:ff9b:1::/48', ['64:ff9b:1::', '64:ff9b:1:ffff:ffff:ffff:ffff:ffff'], []],
  ['100::/64', ['100::', '100::ffff:ffff:ffff:ffff'], []],
  ['2001::/23, Teredo', ['2001::', '2001:0:ffff::1', '2001:1ff:ffff::1'], ['2001:200::']],
  ['2001:db8::/32', ['2001:db8::', '2001:db8:ffff::1'], ['2001:db7:ffff::', '2001:db9::']],
  ['2002::/16', ['2002::', '2002:ffff::'], ['2003::']],
  ['3fff::/20', ['3fff::', '3fff:fff:ffff::'], []],
  ['fe80::/10', ['fe80::', 'febf::ffff'], []],
  ['fec0::/10', ['fec0::', 'feff::ffff'], []],
  ['ff00::/8', ['ff00::', 'ff02::1', 'ffff::ffff'], []],
  [
    'an IPv4 address as interface',
    ['2001:4860::5efe:7f00:1', '2001:4860::200:5efe:a00:1'],
    ['2001:4860::5eff:7f00:1'],
  ],
  ['not handed out', ['1::', '4000::', '5f00::', '8000::', 'e000::'], []],
]

/** The same for what `allowPrivate` lets through. */
const PRIVATE: typeof RANGES = [
  ['127/8', ['127.0.0.0', '127.0.0.1', '127.255.255.255'], ['126.255.255.255', '128.0.0.0']],
  ['10/8', ['10.0.0.0', '10.255.255.255'], ['9.255.255.255', '11.0.0.0']],
  ['172.16/12', ['172.16.0.0', '172.31.255.255'], ['172.15.255.255', '172.32.0.0']],
  ['192.168/16', ['192.168.0.0', '192.168.255.255'], ['192.167.255.255', '192.169.0.0']],
  ['::1', ['::1'], []],
  ['fc00::/7', ['fc00::', 'fdff:ffff::1'], []],
]

const METADATA = [
  '169.254.169.254',
  '100.100.100.200',
  '168.63.129.16',
  '192.0.0.192',
  'fd00:ec2::254',
  'fd20:ce::254',
]

await t.test(
  'threat 19: special ranges are refused to their borders, private addresses allowed or not',
  (t) => {
    for (const [range, inside, outside] of RANGES) {
      for (const address of inside) {
        t.type(addressRefusal(address, false), 'string', `${address} in ${range}`)
        t.type(addressRefusal(address, true), 'string', `${address} in ${range}, private allowed`)
      }
      for (const address of outside)
        t.equal(addressRefusal(address, false), null, `${address} beside ${range}`)
    }
    t.end()
  },
)

await t.test(
  'threat 19: loopback and private addresses are reached where the operator says so, and only there',
  (t) => {
    for (const [range, inside, outside] of PRIVATE) {
      for (const address of inside) {
        t.type(addressRefusal(address, false), 'string', `${address} in ${range}`)
        t.equal(addressRefusal(address, true), null, `${address} in ${range}, private allowed`)
      }
      for (const address of outside)
        t.equal(addressRefusal(address, false), null, `${address} beside ${range}`)
    }
    t.end()
  },
)

await t.test('threat 19: metadata services are never reached', (t) => {
  for (const address of METADATA) {
    t.equal(addressRefusal(address, false), 'metadata', address)
    t.equal(addressRefusal(address, true), 'metadata', `${address}, private allowed`)
  }
  for (const name of [
    'metadata',
    'metadata.google.internal',
    'x.metadata.google.internal',
    'metadata.goog',
  ]) {
    t.equal(hostRefusal(new URL(`http://${name}/`), true), 'metadata', name)
  }
  t.end()
})

await t.test('threat 19: public addresses are not refused', (t) => {
  const addresses = [
    '8.8.8.8',
    '1.1.1.1',
    '93.184.216.34',
    '2606:4700:4700::1111',
    '2a00:1450:4001:80b::200e',
  ]
  for (const address of addresses) t.equal(addressRefusal(address, false), null, address)
  t.end()
})

await t.test('threat 19: an address in any but its usual spelling is refused, and so is a zone', (t) => {
  const spellings = [
    '0177.0.0.1',
    '8.8.8',
    '134744072',
    '0x08080808',
    '8.8.8.8.',
    ' 8.8.8.8',
    '[2606:4700::1]',
    '',
  ]
  for (const text of spellings) t.equal(addressRefusal(text, true), 'malformed', JSON.stringify(text))
  t.equal(addressRefusal('fe80::1%eth0', true), 'zone')
  t.equal(addressRefusal('2606:4700::1%eth0', true), 'zone')
  t.end()
})

await t.test(
  'T16: the block list behind it blocks nothing that is allowed, and nearly all of the table',
  (t) => {
    for (const allowPrivate of [false, true]) {
      const blocked = blockedAddresses(allowPrivate)
      const blocks = (address: string) => blocked.check(address, address.includes(':') ? 'ipv6' : 'ipv4')
      fc.assert(
        fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (address) => {
          return addressRefusal(address, allowPrivate) !== null || !blocks(address)
        }),
        { numRuns: 2000 },
      )
      const table = RANGES.filter(([range]) => !/not handed out|interface|mapped|compatible/.test(range))
      for (const address of table.flatMap(([, inside]) => inside)) t.ok(blocks(address), address)
      for (const address of PRIVATE.flatMap(([, inside]) => inside))
        t.equal(blocks(address), !allowPrivate, address)
      t.ok(blocks('::ffff:127.0.0.1') || allowPrivate, 'a mapped address by the IPv4 address in it')
    }
    t.end()
  },
)

await t.test('threat 19: a host is judged by its name as far as a name can tell', (t) => {
  const cases: readonly (readonly [url: string, plain: string | null, allowPrivate: string | null])[] = [
    ['https://example.com/', null, null],
    ['https://a_b.example.com/', null, null],
    ['http://127.1/', 'loopback', null],
    ['http://[::1]/', 'loopback', null],
    ['http://localhost/', 'loopback', null],
    ['http://a.localhost/', 'loopback', null],
    ['http://notlocalhost.example/', null, null],
    ['http://mcp-server:3000/', 'private', null],
    ['http://a.internal/', 'private', null],
    ['http://[fd00:ec2::254]/', 'metadata', 'metadata'],
    ['http://[::ffff:10.0.0.1]/', 'embedded', 'embedded'],
    ['http://localhost./', 'malformed', 'malformed'],
    ['http://a..b/', 'malformed', 'malformed'],
    [`http://${'a'.repeat(64)}.example/`, 'malformed', 'malformed'],
    ['ftp://example.com/', 'scheme', 'scheme'],
    ['foo://0x7f.1/', 'scheme', 'scheme'],
  ]
  for (const [url, plain, allowed] of cases) {
    t.equal(hostRefusal(new URL(url), false), plain, url)
    t.equal(hostRefusal(new URL(url), true), allowed, `${url}, private allowed`)
  }
  t.end()
})
