import { costlyChain } from '../../siege/attacks/costly-chain.ts'
import { admin, type Item } from './request.ts'

const MIB = 1024 * 1024
/** As much text as a body of 1 MiB has room for. */
const TEXT = 'a'.repeat(MIB - 2_000)

const pem = (base64: string, label = 'CERTIFICATE'): string =>
  `-----BEGIN ${label}-----\n${base64}\n-----END ${label}-----\n`
const many = <T>(count: number, of: (i: number) => T): readonly T[] =>
  Array.from({ length: count }, (_, i) => of(i))

const AGENTS = '/v1/admin/agents'
const BYOCA = `${AGENTS}/enroll/byoca`
const SPIFFE = `${AGENTS}/enroll/spiffe`
const ATTACH = '/v1/admin/ca/attach'
const RESOURCES = '/v1/admin/mcp-resources'
const CAPABILITIES = `${AGENTS}/acme::empty/capabilities`
const KEY = `${AGENTS}/acme::empty/dpop-jwk`

const posts: readonly (readonly [string, string, () => unknown])[] = [
  ['a costly chain to enroll', BYOCA, () => enrolling(costlyChain().cert)],
  ['a costly certificate to enroll', BYOCA, () => enrolling(costlyChain().cert.split('-----END')[0] ?? '')],
  ['costly CAs', ATTACH, () => ({ kind: 'spiffe', ca_pem: costlyChain().cert })],
  ['PEM of nothing, 300 times', ATTACH, () => ({ kind: 'spiffe', ca_pem: pem('AAAA').repeat(300) })],
  ['PEM of 1 MiB', ATTACH, () => ({ kind: 'spiffe', ca_pem: pem(TEXT) })],
  ['PEM of dashes', ATTACH, () => ({ kind: 'spiffe', ca_pem: '-'.repeat(TEXT.length) })],
  [
    'PEM of beginnings',
    ATTACH,
    () => ({ kind: 'spiffe', ca_pem: '-----BEGIN CERTIFICATE-----\n'.repeat(35_000) }),
  ],
  ['PEM of line ends', ATTACH, () => ({ kind: 'spiffe', ca_pem: '\n'.repeat(500_000) })],
  ['an SVID of 1 MiB', SPIFFE, () => ({ agent_name: 'x', svid_pem: pem(TEXT), svid_key_pem: 'x' })],
  [
    'an SVID key of 1 MiB',
    SPIFFE,
    () => ({ agent_name: 'x', svid_pem: 'x', svid_key_pem: pem(TEXT, 'PRIVATE KEY') }),
  ],
  [
    'a certificate request of 1 MiB',
    AGENTS,
    () => ({ agent_name: 'x', csr_pem: pem(TEXT, 'CERTIFICATE REQUEST') }),
  ],
  ['a name of 1 MiB', AGENTS, () => ({ agent_name: TEXT, capabilities: [] })],
  ['a name of combining marks', AGENTS, () => ({ agent_name: '\u0301'.repeat(300_000), capabilities: [] })],
  ['a display name of 1 MiB', AGENTS, () => ({ agent_name: 'x', display_name: TEXT, capabilities: [] })],
  ['100,000 capabilities', AGENTS, () => ({ agent_name: 'x', capabilities: many(90_000, (i) => `c${i}`) })],
  ['a JWK of 1 MiB', KEY, () => ({ jwk: { kty: 'RSA', n: TEXT, e: 'AQAB' } })],
  ['a JWK of 90,000 members', KEY, () => ({ jwk: Object.fromEntries(many(70_000, (i) => [`m${i}`, 0])) })],
  [
    'a resource with 60,000 domains',
    RESOURCES,
    () => resource({ allowed_domains: many(60_000, (i) => `d${i}.example`) }),
  ],
  [
    'a resource with a domain of 1 MiB',
    RESOURCES,
    () => resource({ allowed_domains: ['a.'.repeat(400_000)] }),
  ],
  [
    'a resource at a URL of 1 MiB',
    RESOURCES,
    () => resource({ endpoint_url: `https://example.com/${TEXT}` }),
  ],
  ['a resource with 40,000 tool capabilities', RESOURCES, () => resource({ tool_capabilities: wide() })],
]

const enrolling = (cert_pem: string): object => ({ agent_name: 'x', cert_pem, private_key_pem: 'x' })
const resource = (more: object): object => ({ name: 'x', endpoint_url: 'https://example.com/mcp', ...more })
const wide = (): object => Object.fromEntries(many(40_000, (i) => [`tool${i}`, 'a.b']))

const gets: Readonly<Record<string, string>> = {
  'the newest rows': '/v1/admin/audit?limit=1000',
  'the oldest rows': '/v1/admin/audit?limit=1000&order=asc',
  'rows of a status': '/v1/admin/audit?limit=1000&status=nothing',
  'rows of a principal and an action': '/v1/admin/audit?principal=acme::empty&action=nothing',
  'rows since ever': '/v1/admin/audit?since=2000-01-01T00:00:00Z&order=asc&status=success&limit=1000',
  'the whole ledger': '/v1/admin/audit/export',
  'a cursor of 14 KiB': `/v1/admin/audit?cursor=${'A'.repeat(14_000)}`,
  'a query of 3,000 members': `/v1/admin/audit?${many(3_000, (i) => `${i}=&`).join('')}`,
  'all agents': AGENTS,
  metrics: '/metrics',
}

/** What operators send: few of them, but tools write it, and people paste it. */
export const operatorItems: readonly Item[] = [
  ...posts.map(
    ([name, path, body]): Item => ({
      id: 'E2',
      name,
      who: 'nobody',
      request: (secret) => admin('POST', path, secret, body()),
    }),
  ),
  {
    id: 'E2',
    name: '90,000 capabilities in place of others',
    who: 'nobody',
    request: (secret) => admin('PATCH', CAPABILITIES, secret, { capabilities: many(90_000, (i) => `c${i}`) }),
  },
  ...Object.entries(gets).map(
    ([name, path]): Item => ({
      id: 'A7',
      name,
      who: 'nobody',
      request: (secret) => admin('GET', path, secret),
    }),
  ),
  {
    id: 'A7',
    name: 'verification',
    who: 'nobody',
    request: (secret) => admin('POST', '/v1/admin/audit/verify', secret),
  },
]
