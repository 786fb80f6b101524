import fc from 'fast-check'
import t from 'tap'
import { beginsProxyHeader, crc32c, ProxyHeader, ProxyHeaderError } from '../../../proxy/tls/proxy-header.ts'
import { header2, isSameAddress, vector, withChecksum } from '../../support/tls/proxy-header.ts'

const REFUSED = { name: 'ProxyHeaderError' }

/** What stands behind the header in each case here: the beginning of a hello. */
const BEHIND = Buffer.from([22, 3, 1, 2, 0])

const read = (header: Buffer | string) => new ProxyHeader().add(Buffer.concat([Buffer.from(header), BEHIND]))

const line = (text: string): string => `PROXY ${text}\r\n`

await t.test('§2.1 a line says who calls', async (t) => {
  const cases = {
    'TCP4 192.0.2.7 198.51.100.1 50007 9443': ['192.0.2.7', 50_007, 'IPv4'],
    'TCP4 255.255.255.255 255.255.255.255 65535 65535': ['255.255.255.255', 65_535, 'IPv4'],
    'TCP4 0.0.0.0 0.0.0.0 0 0': ['0.0.0.0', 0, 'IPv4'],
    'TCP6 2001:db8::7 2001:DB8::1 50007 9443': ['2001:db8::7', 50_007, 'IPv6'],
    'TCP6 FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF ::1 1 2': [
      'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
      1,
      'IPv6',
    ],
    'TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 1 2': ['192.0.2.7', 1, 'IPv4'],
    'TCP6 64:ff9b::192.0.2.7 ::1 1 2': ['64:ff9b::c000:207', 1, 'IPv6'],
  }
  for (const [text, [remoteAddress, remotePort, remoteFamily]] of Object.entries(cases))
    t.same(read(line(text)), { caller: { remoteAddress, remotePort, remoteFamily }, rest: BEHIND }, text)
})

await t.test('§2.1 of what is unknown the connection itself counts', async (t) => {
  for (const text of ['UNKNOWN', 'UNKNOWN ', `UNKNOWN ${'f'.repeat(91)}`, 'UNKNOWN TCP4 192.0.2.7 x y z'])
    t.same(read(line(text)), { caller: null, rest: BEHIND }, text)
})

await t.test('§2.1 a line that is not exactly so is refused', async (t) => {
  const lines = [
    ...[
      '',
      'TCP4',
      'TCP5 1.2.3.4 1.2.3.4 1 2',
      'tcp4 1.2.3.4 1.2.3.4 1 2',
      'UDP4 1.2.3.4 1.2.3.4 1 2',
      'UNKNOWNx',
    ],
    // A family that is not that of its addresses.
    ...['TCP4 ::1 ::1 1 2', 'TCP6 1.2.3.4 1.2.3.4 1 2', 'TCP4 1.2.3.4 ::1 1 2', 'TCP6 ::1 1.2.3.4 1 2'],
    // Addresses as ports, ports as addresses, names.
    ...['TCP4 1.2.3.4 1.2.3.4 1.2.3.4 2', 'TCP4 80 81 1.2.3.4 1.2.3.4', 'TCP4 localhost localhost 1 2'],
    ...['TCP4 1.2.3.4 1.2.3.4 65536 2', 'TCP4 1.2.3.4 1.2.3.4 1 65536', 'TCP4 1.2.3.4 1.2.3.4 -1 2'],
    ...[
      'TCP4 1.2.3.4 1.2.3.4 01 2',
      'TCP4 1.2.3.4 1.2.3.4 1 00',
      'TCP4 1.2.3.4 1.2.3.4 +1 2',
      'TCP4 1.2.3.4 1.2.3.4 1',
    ],
    ...[
      'TCP4 01.2.3.4 1.2.3.4 1 2',
      'TCP4 1.2.3 1.2.3.4 1 2',
      'TCP4 1.2.3.256 1.2.3.4 1 2',
      'TCP4 0x1.2.3.4 1.2.3.4 1 2',
    ],
    ...[
      'TCP6 1::2::3 ::1 1 2',
      'TCP6 ::12345 ::1 1 2',
      'TCP6 fe80::1%eth0 ::1 1 2',
      'TCP6 ::1.2.3.4 ::1 1 2',
    ],
    // Blanks.
    ...[
      ' TCP4 1.2.3.4 1.2.3.4 1 2',
      'TCP4  1.2.3.4 1.2.3.4 1 2',
      'TCP4 1.2.3.4 1.2.3.4 1 2 ',
      'TCP4\t1.2.3.4 1.2.3.4 1 2',
    ],
    ...['TCP4 1.2.3.4 1.2.3.4 1 2\0', 'UNKNOWN a\rb', `UNKNOWN ${'f'.repeat(92)}`],
  ].map(line)
  const ends = [
    'PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n',
    'PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n\r',
    'PROXY UNKNOWN\n\r\n',
  ]
  const begins = [
    'PROXX UNKNOWN\r\n',
    'proxy UNKNOWN\r\n',
    'PROXYUNKNOWN\r\n',
    ' PROXY UNKNOWN\r\n',
    '\r\nPROXY UNKNOWN\r\n',
  ]
  for (const text of [...lines, ...ends, ...begins]) t.throws(() => read(text), REFUSED, JSON.stringify(text))
})

await t.test('§2.2 a header of version 2 says who calls', async (t) => {
  const v4 = { remoteAddress: '192.0.2.7', remotePort: 50_007, remoteFamily: 'IPv4' }
  t.same(read(header2()), { caller: v4, rest: BEHIND })
  const v6 = { remoteAddress: '2001:db8::7', remotePort: 50_007, remoteFamily: 'IPv6' }
  t.same(read(header2({ source: '2001:db8::7' })), { caller: v6, rest: BEHIND })
  t.same(read(header2({ source: '::ffff:192.0.2.7' })), { caller: v4, rest: BEHIND }, 'IPv4 in IPv6')
  const vectors = Buffer.concat([
    vector(1, 'h2'),
    vector(2, 'gate.example'),
    vector(4, ''),
    vector(0xee, '\0\0'),
  ])
  t.same(read(header2({ vectors })), { caller: v4, rest: BEHIND }, 'with vectors')
  t.same(
    read(header2({ vectors: vector(4, Buffer.alloc(4_096 - 28 - 3)) })),
    { caller: v4, rest: BEHIND },
    'the longest',
  )
})

await t.test('§2.2 of LOCAL, and of what is no TCP, the connection itself counts', async (t) => {
  const zeros = (length: number): Buffer => Buffer.alloc(length)
  const headers = {
    'LOCAL without addresses': header2({ command: 0x20, kind: 0, block: zeros(0) }),
    'LOCAL with an address': header2({ command: 0x20 }),
    'LOCAL of a family that there is not': header2({ command: 0x20, kind: 0xff, block: zeros(7) }),
    'LOCAL with a wrong checksum': header2({ command: 0x20, kind: 0, block: vector(3, 'lies') }),
    unspecified: header2({ kind: 0, block: zeros(0) }),
    'unspecified, with bytes that nobody knows': header2({ kind: 0, block: Buffer.alloc(9, 0xff) }),
    'unspecified transport': header2({ kind: 0x10 }),
    'unspecified transport, without addresses': header2({ kind: 0x10, block: zeros(1) }),
    'unspecified family': header2({ kind: 0x01, block: zeros(0) }),
    'UDP over IPv4': header2({ kind: 0x12 }),
    'UDP over IPv6': header2({ kind: 0x22, source: '2001:db8::7' }),
    'a Unix stream': header2({ kind: 0x31, block: Buffer.alloc(216, 0x2f) }),
    'Unix datagrams': header2({ kind: 0x32, block: zeros(216) }),
  }
  for (const [name, header] of Object.entries(headers))
    t.same(read(header), { caller: null, rest: BEHIND }, name)
})

await t.test('§2.2 lies in a header of version 2 are refused', async (t) => {
  const headers = {
    'version 1': header2({ command: 0x11 }),
    'version 3': header2({ command: 0x31 }),
    'a command that there is not': header2({ command: 0x22 }),
    'a family that there is not': header2({ kind: 0x41 }),
    'a transport that there is not': header2({ kind: 0x13 }),
    'a length without room for the addresses': header2({ length: 11 }),
    'no addresses at all': header2({ block: Buffer.alloc(0) }),
    'IPv4 addresses as IPv6': header2({ kind: 0x21 }),
    'a Unix address that is cut': header2({ kind: 0x31, block: Buffer.alloc(215) }),
    'a vector longer than the header': header2({ vectors: vector(2, 'name', 5) }),
    'a vector of 65,535 bytes': header2({ vectors: vector(2, '', 65_535) }),
    'half a vector': header2({ vectors: Buffer.from([4]) }),
    'two thirds of one': header2({ vectors: Buffer.from([4, 0]) }),
    'a header that is too long': header2({ vectors: vector(4, Buffer.alloc(4_096 - 28 - 2)) }),
    'a length of 65,535 bytes': header2({ length: 65_535 }),
  }
  for (const [name, header] of Object.entries(headers)) t.throws(() => read(header), REFUSED, name)
})

await t.test('§2.2 a length that is too long is refused before its bytes have come', async (t) => {
  t.throws(() => new ProxyHeader().add(header2({ length: 65_535 }).subarray(0, 16)), REFUSED)
  t.throws(() => new ProxyHeader().add(header2({ command: 0x11 }).subarray(0, 13)), REFUSED)
  t.throws(() => new ProxyHeader().add(Buffer.from('PROXX')), REFUSED)
  t.throws(() => new ProxyHeader().add(Buffer.from('PROXY UNKNOWN '.padEnd(107, 'f'))), REFUSED)
  t.throws(() => new ProxyHeader().add(Buffer.from([22])), REFUSED, 'TLS')
  t.equal(new ProxyHeader().add(Buffer.from('P')), null)
  t.equal(new ProxyHeader().add(Buffer.from('\r')), null)
})

await t.test('§2.2.3 a checksum that is there must be right', async (t) => {
  t.equal(crc32c(Buffer.from('123456789')), 0xe3069283)
  t.equal(crc32c(Buffer.alloc(32)), 0x8a9136aa)
  const vectors = vector(5, 'id')
  t.match(read(withChecksum({ vectors })), { caller: { remoteAddress: '192.0.2.7' } })
  t.match(read(withChecksum({ source: '2001:db8::7' })), { caller: { remoteAddress: '2001:db8::7' } })
  t.throws(() => read(withChecksum({ vectors }, true)), REFUSED)
  const turned = withChecksum({ vectors })
  turned.writeUInt8(turned.readUInt8(17) ^ 1, 17)
  t.throws(() => read(turned), REFUSED, 'an address was changed')
  t.throws(() => read(header2({ vectors: vector(3, Buffer.alloc(3)) })), REFUSED, 'three bytes')
  const twice = withChecksum({ vectors: vector(3, Buffer.alloc(4)) })
  t.throws(() => read(twice), REFUSED, 'one of two')
})

await t.test(
  '§2 however a header is cut into pieces, it says the same, and nothing behind it is lost',
  async () => {
    // In 39 characters: a line of version 1 has no room for two addresses that end in decimals (§2.1).
    const address = fc.oneof(
      fc.ipV4(),
      fc.ipV6().filter((text) => text.length <= 39 && !/^::\d+\./.test(text)),
    )
    const port = fc.nat(65_535)
    const header = fc.record({ address, port, text: fc.boolean(), noise: fc.uint8Array({ maxLength: 300 }) })
    const cuts = fc.array(fc.nat(400), { maxLength: 20 })
    fc.assert(
      fc.property(header, fc.uint8Array({ maxLength: 50 }), cuts, (wanted, behind, places) => {
        const family = wanted.address.includes(':') ? 6 : 4
        const text = line(`TCP${family} ${wanted.address} ${wanted.address} ${wanted.port} 9443`)
        const vectors = vector(4, Buffer.from(wanted.noise))
        const binary = withChecksum({ source: wanted.address, sourcePort: wanted.port, vectors })
        const bytes = Buffer.concat([wanted.text ? Buffer.from(text) : binary, Buffer.from(behind)])
        const end = bytes.length - behind.length
        const reader = new ProxyHeader()
        const at = [...new Set([0, ...places.map((place) => place % bytes.length), bytes.length])].toSorted(
          (a, b) => a - b,
        )
        for (const [index, from] of at.entries()) {
          const to = at[index + 1] ?? bytes.length
          const named = reader.add(bytes.subarray(from, to))
          if (to < end) {
            if (named !== null) return false
            continue
          }
          const { remoteAddress = '', remotePort, remoteFamily } = named?.caller ?? {}
          const rest = Buffer.concat([named?.rest ?? Buffer.from('lost'), bytes.subarray(to)])
          const mapped = remoteFamily === 'IPv4' && family === 6
          const expected = mapped ? `::ffff:${remoteAddress}` : remoteAddress
          const same = isSameAddress(wanted.address, expected, family === 4 ? 'ipv4' : 'ipv6')
          return same && remotePort === wanted.port && rest.equals(Buffer.from(behind))
        }
        return false
      }),
      { numRuns: 2_000 },
    )
  },
)

await t.test('§2 no bytes at all make it do anything but wait, name, or refuse', async () => {
  const tails = fc.uint8Array({ maxLength: 300 })
  const heads = fc.constantFrom(
    '',
    'PROXY ',
    'PROXY TCP4 ',
    '\r\n\r\n\0\r\nQUIT\n',
    '\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x20',
  )
  fc.assert(
    fc.property(heads, tails, (head, tail) => {
      try {
        const named = new ProxyHeader().add(Buffer.concat([Buffer.from(head, 'latin1'), tail]))
        return named === null || named.caller === null || named.caller.remotePort <= 65_535
      } catch (error) {
        return error instanceof ProxyHeaderError
      }
    }),
    { numRuns: 5_000 },
  )
})

await t.test('what begins like a header is told from TLS and HTTP', async (t) => {
  for (const bytes of [header2(), Buffer.from(line('UNKNOWN')), header2().subarray(0, 12)])
    t.ok(beginsProxyHeader(bytes))
  for (const text of ['POST / HTTP/1.1', 'PROPFIND / HTTP/1.1', 'PROXY', '\r\n\r\n', '', '\x16\x03\x01'])
    t.notOk(beginsProxyHeader(Buffer.from(text)), JSON.stringify(text))
})
