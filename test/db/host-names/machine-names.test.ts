import t from 'tap'
import { addressesIn, expandSearchList } from '../../../db/host-names/machine-names.ts'

await t.test('H2: a hosts file is read as the system reads it', (t) => {
  const file = `127.0.0.1 localhost loopback # self
::1\tlocalhost
# 10.0.0.1 gone.internal
10.0.0.9  MCP.internal   mcp
not-an-address mcp
10.0.0.10 mcp # twice`
  t.same(addressesIn(file, 'localhost'), [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ])
  t.same(addressesIn(file, 'mcp.internal'), [{ address: '10.0.0.9', family: 4 }])
  t.equal(addressesIn(file, 'mcp').length, 2)
  t.same(addressesIn(file, 'gone.internal'), [])
  t.same(addressesIn(file, 'self'), [], 'a comment names nobody')
  t.same(addressesIn('', 'mcp'), [])
  t.end()
})

await t.test('H2: a short name stands for those of the search list, in its order (resolv.conf(5))', (t) => {
  const cluster =
    'nameserver 10.0.0.53\nsearch team.svc.cluster.local svc.cluster.local\noptions ndots:5 rotate\n'
  t.same(expandSearchList('opa.policy', cluster), [
    'opa.policy.team.svc.cluster.local',
    'opa.policy.svc.cluster.local',
    'opa.policy',
  ])
  t.same(expandSearchList('opa', 'domain corp.example.'), ['opa.corp.example', 'opa'])
  t.same(expandSearchList('api.example.com', 'search corp.example'), [
    'api.example.com',
    'api.example.com.corp.example',
  ])
  t.same(expandSearchList('api.example.com.', cluster), ['api.example.com'], 'a dot at the end: itself alone')
  t.same(expandSearchList('api.example.com', ''), ['api.example.com'])
  t.same(
    expandSearchList('a', 'search x.example\nsearch y.example'),
    ['a.y.example', 'a'],
    'the last line counts',
  )
  t.end()
})
