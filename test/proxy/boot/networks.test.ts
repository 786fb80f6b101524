import t from 'tap'
import { networkMatcher, parseNetwork } from '../../../proxy/boot/networks.ts'

await t.test('an address is a network of its own, and both have one spelling', async (t) => {
  const cases = {
    '10.0.0.4': '10.0.0.4/32',
    '10.0.0.0/8': '10.0.0.0/8',
    '0.0.0.0/0': '0.0.0.0/0',
    '2001:DB8:0:0::1': '2001:db8::1/128',
    '::/0': '::/0',
  }
  for (const [text, network] of Object.entries(cases)) t.equal(parseNetwork(text), network, text)
  for (const text of [
    '',
    '/',
    '/8',
    '10.0.0.0/-1',
    '10.0.0.0/1e1',
    '10.1',
    '1::2::3',
    '::ffff:10.0.0.4',
    '::1 ',
  ])
    t.equal(parseNetwork(text), null, text)
})

await t.test('an address lies in a network as sockets name it: IPv4 as IPv6, and with a zone', async (t) => {
  const isBalancer = networkMatcher(['10.1.0.0/16', '192.0.2.7/32', '2001:db8::/32', 'fe80::/10'])
  for (const address of ['10.1.2.3', '::ffff:10.1.2.3', '192.0.2.7', '2001:db8::9', 'fe80::1%eth0'])
    t.ok(isBalancer(address), address)
  for (const address of [
    '10.2.0.1',
    '::ffff:10.2.0.1',
    '192.0.2.8',
    '2001:db9::1',
    '::1',
    '127.0.0.1',
    '::a01:203',
  ])
    t.notOk(isBalancer(address), address)
})
