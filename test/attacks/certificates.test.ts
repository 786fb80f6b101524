import { spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import t from 'tap'
import { createAuthority, loadAuthority } from '../../certs/authority/authority.ts'
import { openAuthority } from '../../certs/authority/files.ts'
import { issueClientCertificate, issueServerCertificate } from '../../certs/authority/issue.ts'
import { without } from '../support/certs/openssl.ts'
import {
  agentOf,
  CHAT,
  type Identity,
  sharedGateway,
  type TestGateway,
  testGateway,
} from '../support/gateway.ts'
import { chatBytes, rawConnect, requestBytes, statuses } from '../support/raw.ts'

const PATH = '/v1/chat/completions'
const DAY_MS = 86_400_000
const BOT = { commonName: 'acme::bot', spiffeId: 'spiffe://sallyport.local/acme/bot' }

/** A clock that stands until it is moved. */
function movable(): { clock: () => number; move: (ms: number) => void } {
  let at = Date.now()
  return {
    clock: () => at,
    move: (ms) => {
      at += ms
    },
  }
}

const chat = (gateway: TestGateway, who: Identity | null) => gateway.call(who, 'POST', PATH, { body: CHAT })

/** The gateway's own CA, as somebody who has stolen its data directory would open it. */
async function ownAuthority({ settings }: TestGateway) {
  const directory = join(settings.dataDir, 'ca')
  const passphrase =
    settings.keyPassphrase ?? (await readFile(join(settings.dataDir, 'key-passphrase'), 'utf8')).trim()
  const { org: organisation, trustDomain } = settings
  const { authority } = await openAuthority({
    directory,
    passphrase,
    organisation,
    trustDomain,
    at: Date.now(),
  })
  return authority
}

t.test('T5 M-05 F-33 a certificate that expires on an open connection ends with it', async (t) => {
  const { clock, move } = movable()
  const gateway = await testGateway(t, { clock })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const connection = await rawConnect(t, gateway, bot)
  connection.send(chatBytes('gpt-test'))
  await connection.until('chatcmpl-1')
  move(90 * DAY_MS + 2_000)
  connection.send(chatBytes('gpt-test'))
  const received = await connection.closed
  t.same(statuses(received), [200, 401])
  t.match(received, 'certificate_not_valid_now')
  t.match(received.slice(received.indexOf('HTTP/1.1 401')), /connection: close\r\n/i)
  t.equal(gateway.upstream.seen.length, 1, 'nothing more was dispatched')
})

t.test(
  'T5 M-05 a certificate that is not valid yet is nobody, on a new connection and on an open one',
  async (t) => {
    const { clock, move } = movable()
    const gateway = await testGateway(t, { clock })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const connection = await rawConnect(t, gateway, bot)
    move(-DAY_MS)
    t.match(await chat(gateway, bot), {
      status: 401,
      json: {
        reason: 'certificate_not_valid_now',
        message: /is not valid before \S+Z\. The clock of this gateway says \S+Z\./,
      },
    })
    connection.send(chatBytes('gpt-test'))
    t.same(statuses(await connection.closed), [401])
    move(DAY_MS)
    t.equal((await chat(gateway, bot)).status, 200)
  },
)

t.test('M-04 T6 who is not pinned is nobody, whatever the certificate says', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const authority = await ownAuthority(gateway)
  const term = { at: Date.now(), days: 1 }
  const foreign = await loadAuthority(
    await createAuthority({ organisation: 'acme', trustDomain: 'sallyport.local', at: Date.now() }),
  )
  const lookAlike = await issueClientCertificate(authority, BOT, term)
  const cloned = await issueClientCertificate(foreign, BOT, term)
  const server = await issueServerCertificate(authority, ['localhost'], term)
  const identities: readonly (readonly [string, { chainPem: string; privateKeyPem: string }])[] = [
    ['the same CA, SPIFFE id and name, another key', lookAlike],
    ['a CA that carries our names', cloned],
    ["a server's certificate of our CA", server],
  ]
  for (const [name, { chainPem, privateKeyPem }] of identities) {
    const answer = await chat(gateway, { id: bot.id, cert: chainPem, key: privateKeyPem })
    t.match(
      answer,
      { status: 401, json: { reason: 'certificate_not_pinned' }, headers: { connection: 'close' } },
      name,
    )
  }
  t.match(
    await chat(gateway, null),
    { status: 401, json: { reason: 'certificate_required' } },
    'no certificate',
  )
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  await t.rejects(chat(gateway, { ...bot, key }), 'a pinned certificate without its key')
  t.equal(gateway.upstream.seen.length, 0)
  t.equal((await chat(gateway, bot)).status, 200, 'the pinned one is served')
})

t.test(
  'M-06 a deactivated agent is refused on its open connection, and served again once reactivated',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const connection = await rawConnect(t, gateway, bot)
    connection.send(chatBytes('gpt-test'))
    await connection.until('chatcmpl-1')
    t.equal((await gateway.admin('DELETE', `/v1/admin/agents/${bot.id}`)).status, 204)
    connection.send(chatBytes('gpt-test'))
    const received = await connection.closed
    t.same(statuses(received), [200, 401])
    t.match(received, 'principal_deactivated')
    await gateway.admin('POST', `/v1/admin/agents/${bot.id}/reactivate`)
    t.equal((await chat(gateway, bot)).status, 200)
  },
)

t.test('M-06 a capability that is taken away holds on the next request of an open connection', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const agent = agentOf(gateway.ca, bot, true)
  t.teardown(() => agent.destroy())
  t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT, agent })).status, 200)
  await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] })
  t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT, agent })).status, 403)
})

t.test('M-04 F-32 a rotated certificate is served for its grace and not a moment longer', async (t) => {
  const { clock, move } = movable()
  const gateway = await testGateway(t, { clock })
  const first = await gateway.enroll('bot', ['llm.chat'])
  const rotate = async (hours: number): Promise<Identity> => {
    const { json } = await gateway.admin('POST', `/v1/admin/agents/${first.id}/rotate-cert`, {
      grace_hours: hours,
    })
    return { id: first.id, cert: json.cert_chain_pem, key: json.private_key_pem }
  }
  const connection = await rawConnect(t, gateway, first)
  const second = await rotate(1)
  t.equal((await chat(gateway, second)).status, 200, 'the new one at once')
  connection.send(chatBytes('gpt-test'))
  await connection.until('chatcmpl-1')
  const inGrace = (await gateway.rows()).filter(({ detail }) => detail.certificate === 'previous')
  t.equal(inGrace.length, 1, 'its use in grace is on record')
  move(3_600_000)
  connection.send(chatBytes('gpt-test'))
  t.same(statuses(await connection.closed), [200, 401], 'the old one ends on its open connection')
  t.equal((await chat(gateway, second)).status, 200)
  const third = await rotate(0)
  t.match(
    await chat(gateway, second),
    { status: 401, json: { reason: 'certificate_not_pinned' } },
    'no grace',
  )
  t.match(await chat(gateway, first), { status: 401 }, 'and none for the one before it')
  t.equal((await chat(gateway, third)).status, 200)
})

t.test('M-09 M-13 TLS 1.3 and HTTP/1.1 only, unless a setting says otherwise', async (t) => {
  const gateway = await sharedGateway(t)
  const old: ConnectionOptions = { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' }
  await t.rejects(rawConnect(t, gateway, null, old), { code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION' })
  for (const ALPNProtocols of [['h2'], ['http/1.0'], ['spdy/3', 'h3']]) {
    await t.rejects(
      rawConnect(t, gateway, null, { ALPNProtocols }),
      { code: 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL' },
      ALPNProtocols.join(),
    )
  }
  const both = await rawConnect(t, gateway, null, { ALPNProtocols: ['h2', 'http/1.1'] })
  t.equal(both.socket.alpnProtocol, 'http/1.1')
  t.equal(both.socket.getProtocol(), 'TLSv1.3')
})

t.test('M-09 TLS 1.2 by its setting, with forward secrecy and AEAD alone', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_TLS_MIN_VERSION: '1.2' } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const old: ConnectionOptions = { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' }
  const connection = await rawConnect(t, gateway, bot, old)
  t.match(connection.socket.getCipher().name, /^ECDHE-ECDSA-.*(GCM|POLY1305)/)
  connection.send(chatBytes('gpt-test', ['connection: close']))
  t.same(statuses(await connection.closed), [200])
  for (const ciphers of ['ECDHE-ECDSA-AES128-SHA', 'AES128-GCM-SHA256', 'ECDHE-ECDSA-AES256-SHA384']) {
    await t.rejects(rawConnect(t, gateway, bot, { ...old, ciphers }), ciphers)
  }
  await t.rejects(
    rawConnect(t, gateway, bot, { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'ALL@SECLEVEL=0' }),
    'TLS 1.1',
  )
  const again = await rawConnect(t, gateway, bot, old)
  again.socket.on('error', () => {})
  again.socket.renegotiate({}, () => {})
  t.same(statuses(await again.closed), [], 'M-10 renegotiation ends the connection')
})

t.test(
  'T5 M-11 no session is resumed, neither by ticket nor by id, also after the certificate was swapped',
  async (t) => {
    for (const version of ['TLSv1.3', 'TLSv1.2'] as const) {
      const gateway = await testGateway(t, { settings: { MCP_PROXY_TLS_MIN_VERSION: '1.2' } })
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const options: ConnectionOptions = { minVersion: version, maxVersion: version }
      for (const moment of ['at first', 'after a reload']) {
        const sessions: Buffer[] = []
        const first = await rawConnect(t, gateway, bot, options)
        first.socket.on('session', (session: Buffer) => sessions.push(session))
        first.send(requestBytes('GET', '/health', ['connection: close']))
        await first.closed
        const kept = sessions.at(-1) ?? first.socket.getSession()
        const stolen = await rawConnect(t, gateway, null, { ...options, ...(kept && { session: kept }) })
        t.equal(stolen.socket.isSessionReused(), false, `${version} ${moment}`)
        stolen.send(chatBytes('gpt-test'))
        t.same(statuses(await stolen.closed), [401], 'without the certificate it is nobody')
        t.equal(await gateway.reload(), true)
      }
    }
  },
)

t.test(
  'M-11 openssl, which keeps what it can, resumes nothing either',
  { skip: without('openssl') },
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const directory = t.testdir({ 'ca.crt': gateway.ca, 'bot.crt': bot.cert, 'bot.key': bot.key })
    const own = ['-cert', 'bot.crt', '-key', 'bot.key']
    const first = await client(gateway, directory, [...own, '-sess_out', 'session'])
    t.match(first, 'New, TLSv1.3')
    t.match(first, 'HTTP/1.1 200', 'with its certificate it is served')
    // A server that offers no session at all leaves no file, and that is as good.
    const stolen = existsSync(join(directory, 'session')) ? ['-sess_in', 'session'] : []
    const second = await client(gateway, directory, stolen)
    t.match(second, 'New, TLSv1.3')
    t.notMatch(second, /^Reused/m)
    t.match(second, 'certificate_required')
  },
)

/** One chat call by `openssl s_client`; resolves with everything it printed. */
function client(gateway: TestGateway, directory: string, more: readonly string[]): Promise<string> {
  const { port } = new URL(gateway.url)
  const args = [
    's_client',
    '-connect',
    `127.0.0.1:${port}`,
    '-servername',
    'localhost',
    '-CAfile',
    'ca.crt',
    '-ign_eof',
    ...more,
  ]
  return new Promise((resolve, reject) => {
    const child = spawn('openssl', args, { cwd: directory })
    let text = ''
    const take = (chunk: Buffer): void => {
      text += chunk.toString()
    }
    child.stdout.on('data', take)
    child.stderr.on('data', take)
    child.stdin.end(chatBytes('gpt-test', ['connection: close']))
    child.on('error', reject).on('close', () => resolve(text))
  })
}
