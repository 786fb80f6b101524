import { once } from 'node:events'
import https from 'node:https'
import { TLSSocket } from 'node:tls'
import t from 'tap'
import { issueClientCertificate, issueServerCertificate } from '../../certs/authority/issue.ts'
import { thumbprintOf } from '../../certs/x509/x509.ts'
import { BOT, madeAuthority } from '../support/certs/made.ts'
import { run, without } from '../support/certs/openssl.ts'

/**
 * One CA, its server and one of its clients; a second client from a look-alike CA. All of it in a directory
 * of files.
 */
async function scene(t: {
  testdir: (files: Record<string, string>) => string
  teardown: (end: () => void) => void
}) {
  const at = Date.now()
  const { authority, rootPem } = await madeAuthority(at)
  const client = await issueClientCertificate(authority, BOT, { at, days: 1 })
  const clone = await issueClientCertificate((await madeAuthority(at)).authority, BOT, { at, days: 1 })
  const own = await issueServerCertificate(authority, ['localhost', '127.0.0.1'], { at, days: 1 })
  const tls = { ca: rootPem, cert: own.chainPem, key: own.privateKeyPem }
  const server = https.createServer(
    { ...tls, requestCert: true, rejectUnauthorized: true },
    (request, response) => {
      const certificate = request.socket instanceof TLSSocket && request.socket.getPeerX509Certificate()
      response.end(certificate ? thumbprintOf(certificate.raw) : 'nobody')
    },
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the server has no port')
  const directory = t.testdir({
    'org-ca.crt': rootPem,
    'agent.crt': client.chainPem,
    'agent.key': client.privateKeyPem,
    'leaf-only.crt': client.certPem,
    'clone.crt': clone.chainPem,
    'clone.key': clone.privateKeyPem,
  })
  return { directory, port: address.port, thumbprint: client.thumbprint }
}

await t.test(
  '§5.1 curl with a client certificate is known by its thumbprint',
  { skip: without('curl') },
  async (t) => {
    const { directory, port, thumbprint } = await scene(t)
    const curl = (host: string, cert: string, key: string) =>
      run('curl', directory, [
        ...['--silent', '--show-error', '--noproxy', '*', '--max-time', '20', '--cacert', 'org-ca.crt'],
        ...['--cert', cert, '--key', key, `https://${host}:${port}/`],
      ])
    t.same(await curl('127.0.0.1', 'agent.crt', 'agent.key'), { status: 0, text: thumbprint })
    t.same(await curl('localhost', 'agent.crt', 'agent.key'), { status: 0, text: thumbprint })
    t.not((await curl('127.0.0.1', 'clone.crt', 'clone.key')).status, 0)
    // A leaf alone cannot be chained by a server that knows only the root: why agent.crt holds the
    // intermediate too.
    t.not((await curl('127.0.0.1', 'leaf-only.crt', 'agent.key')).status, 0)
  },
)

await t.test(
  '§5.1 openssl s_client accepts the server certificate against the exported root',
  { skip: without('openssl') },
  async (t) => {
    const { directory, port } = await scene(t)
    const connect = (...more: string[]) =>
      run('openssl', directory, [
        's_client',
        '-connect',
        `127.0.0.1:${port}`,
        '-CAfile',
        'org-ca.crt',
        ...more,
      ])
    const client = ['-cert', 'agent.crt', '-key', 'agent.key', '-verify_return_error']
    const right = await connect('-verify_hostname', 'localhost', ...client)
    t.match(right.text, /Verify return code: 0 \(ok\)/)
    const wrong = await connect('-verify_hostname', 'evil.example', ...client)
    t.match(wrong.text, /hostname mismatch/i)
    t.notMatch(wrong.text, /Verify return code: 0/)
  },
)
