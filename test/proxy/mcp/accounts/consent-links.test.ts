import { randomBytes } from 'node:crypto'
import t from 'tap'
import { consentLinks } from '../../../../proxy/mcp/accounts/consent-links.ts'

const AT = Date.UTC(2026, 0, 1)
const pages = {
  key: randomBytes(32),
  peopleUrl: 'https://people.test',
  adminUrls: () => ['https://admin.test'],
}
const links = consentLinks(pages)
const request = {
  principal: { type: 'user', id: 'acme::user::alice' },
  resourceId: 'mcpr_1',
  scopes: ['mail'],
} as const

t.test('a link is of one principal and resource, and over in a quarter of an hour', (t) => {
  const id = links.seal(request, AT)
  t.strictSame(links.open(id, AT + 899_999), request)
  t.equal(links.open(id, AT + 900_000), null)
  t.equal(links.open(`${id.slice(0, -3)}AAA`, AT), null, 'one byte is another')
  t.equal(links.open('', AT), null)
  t.equal(consentLinks({ ...pages, key: randomBytes(32) }).open(id, AT), null, 'of another service')
  t.notMatch(Buffer.from(id, 'base64url').toString('latin1'), /alice/)
  t.end()
})

t.test('a user has a page at the listener for people, an agent one of the dashboard', (t) => {
  const agent = { ...request, principal: { type: 'agent', id: 'acme::bot' } } as const
  t.match(links.urlOf(request, AT), /^https:\/\/people\.test\/connect\/[\w-]+$/)
  t.match(links.urlOf(agent, AT), /^https:\/\/admin\.test\/proxy\/connect\/[\w-]+$/)
  const ticket = links.handOver(agent, { ref: 'acme::operator::ann' }, AT).split('/').at(-1) ?? ''
  t.strictSame(links.openHandOver(ticket, AT + 59_999), {
    request: agent,
    operator: { ref: 'acme::operator::ann' },
  })
  t.equal(links.openHandOver(ticket, AT + 60_000), null)
  t.equal(links.openHandOver(links.seal(agent, AT), AT), null, 'a link is no hand-over')
  t.equal(links.open(ticket, AT), null, 'nor the other way round')
  t.end()
})

t.test('a link stays short, whatever is asked for', (t) => {
  const scopes = Array.from({ length: 64 }, (_, index) =>
    `https://issuer.example/scopes/${index}`.padEnd(200, 'x'),
  )
  const id = links.seal({ ...request, scopes }, AT)
  t.ok(id.length < 1_500)
  t.strictSame(links.open(id, AT)?.scopes, [], 'all of the settings are asked for')
  t.end()
})
