import t, { type Test } from 'tap'
import { fileBeside, identityFiles, type Ran, run } from '../support/clients/files.ts'
import { mockProvider, SAID } from '../support/clients/sdk.ts'
import { ADMIN_SECRET, CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'

const JSON_BODY = ['-H', 'content-type: application/json']
const MIB = 1024 * 1024

/** A chat call of so many bytes. */
const chatOf = (bytes: number): string => {
  const call = (content: string): string => JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] })
  return call('a'.repeat(bytes - call('').length))
}

/** curl with an identity's files. What it prints ends with a line of the status and the HTTP version. */
function curlOf(t: Test, gateway: TestGateway, who: Identity) {
  const files = identityFiles(t, gateway, who)
  const fixed = ['-sS', '--noproxy', '*', '--cacert', files.ca, '-w', '\\n%{http_code} %{http_version}']
  const curl = (path: string, args: readonly string[], onOutput?: (text: string) => void): Promise<Ran> =>
    run('curl', [...fixed, '--cert', files.cert, '--key', files.key, ...args, gateway.url + path], onOutput)
  return { curl, file: (name: string, content: string) => fileBeside(files, name, content) }
}

/** What curl printed: the body, and its last line. */
function parts({ out }: Ran): { body: string; last: string } {
  const end = out.lastIndexOf('\n')
  return { body: out.slice(0, end), last: out.slice(end + 1) }
}

await t.test('curl with a client certificate gets JSON', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const { curl } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const ran = await curl('/v1/chat/completions', [...JSON_BODY, '-d', JSON.stringify(CHAT)])
  t.equal(ran.code, 0)
  t.equal(parts(ran).last, '200 1.1')
  t.equal(JSON.parse(parts(ran).body).choices[0].message.content, SAID)
})

await t.test('curl without any capability gets the refusal, which says what to do', async (t) => {
  const gateway = await testGateway(t)
  const { curl } = curlOf(t, gateway, await gateway.enroll('nobody', []))
  const ran = await curl('/v1/chat/completions', [...JSON_BODY, '-d', JSON.stringify(CHAT)])
  t.equal(parts(ran).last, '403 1.1')
  t.match(JSON.parse(parts(ran).body), {
    reason: 'capability_missing',
    required_capability: 'llm.chat',
    message: 'acme::nobody does not hold the capability llm.chat. Ask an operator to grant it.',
  })
})

await t.test('curl -N sees each event when the provider sends it', async (t) => {
  const gateway = await testGateway(t)
  const heard = new Map<string, () => void>()
  const until = (text: string): Promise<void> => new Promise((resolve) => heard.set(text, resolve))
  gateway.upstream.answer = async (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    // The next event is sent when curl has printed the one before: nothing on the way may hold it back.
    for (const text of ['one', 'two', 'three']) {
      const printed = until(text)
      res.write(`data: {"${text}": true}\n\n`)
      await printed
    }
    res.end('data: [DONE]\n\n')
  }
  const { curl } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const body = JSON.stringify({ ...CHAT, stream: true })
  const ran = await curl('/v1/chat/completions', ['-N', ...JSON_BODY, '-d', body], (text) => {
    for (const [expected, resolve] of heard) if (text.includes(expected)) resolve()
  })
  t.equal(ran.code, 0)
  t.equal(
    parts(ran).body,
    'data: {"one": true}\n\ndata: {"two": true}\n\ndata: {"three": true}\n\ndata: [DONE]\n\n',
  )
})

await t.test('T4 curl is told by its exit code that a stream was cut', async (t) => {
  const { files } = await mockProvider(t)
  const gateway = await testGateway(t, { files })
  const { curl } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const body = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: 'break off' }], stream: true })
  const ran = await curl('/v1/chat/completions', ['-N', ...JSON_BODY, '-d', body])
  t.equal(ran.code, 18, 'transfer closed with outstanding data')
  t.match(ran.out, /data: \{"error":\{"type":"api_error","code":"provider_failed"/)
  t.notMatch(ran.out, '[DONE]')
})

await t.test(
  'Expect: 100-continue: a body is asked for when the caller is known, and not before',
  async (t) => {
    const gateway = await testGateway(t)
    const { curl, file } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const body = chatOf(2 * MIB)
    const upload = [
      '-v',
      ...JSON_BODY,
      '-H',
      'Expect: 100-continue',
      '--data-binary',
      `@${file('body', body)}`,
    ]
    const ran = await curl('/v1/chat/completions', upload)
    t.equal(parts(ran).last, '200 1.1')
    t.match(ran.err, /< HTTP\/1\.1 100 Continue/)
    t.equal(gateway.upstream.seen[0]?.body.length, 2 * MIB)
    t.equal(gateway.upstream.seen[0]?.headers.expect, undefined, 'it does not go upstream')

    await gateway.admin('DELETE', '/v1/admin/agents/acme::bot')
    const refused = await curl('/v1/chat/completions', upload)
    t.equal(parts(refused).last, '401 1.1')
    t.notMatch(refused.err, /100 Continue/, 'a stranger is refused before the upload')
  },
)

await t.test('a refusal of 8 MB reaches curl, however it sends them', async (t) => {
  const gateway = await testGateway(t)
  const { curl, file } = curlOf(t, gateway, await gateway.enroll('bot', []))
  const upload = ['-X', 'POST', ...JSON_BODY, '--data-binary', `@${file('body', 'x'.repeat(8_000_000))}`]
  for (const status of ['403', '401']) {
    for (const how of ['Expect: 100-continue', 'Expect:', 'Transfer-Encoding: chunked']) {
      const ran = await curl('/v1/chat/completions', [...upload, '-m', '5', '-H', how])
      t.equal(parts(ran).last, `${status} 1.1`, `${how} ${ran.err}`)
      t.match(JSON.parse(parts(ran).body), { reason: /./ }, how)
    }
    await gateway.admin('DELETE', '/v1/admin/agents/acme::bot')
  }
})

await t.test('HTTP/1.0 is refused, in the handshake where the client offers it there', async (t) => {
  const gateway = await testGateway(t)
  const { curl } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const silent = await curl('/v1/models', ['--http1.0', '--no-alpn'])
  t.match(parts(silent).last, /^400 /)
  t.match(JSON.parse(parts(silent).body), {
    reason: 'bad_request',
    message: 'Only HTTP/1.1 is supported.',
  })
  const offered = await curl('/v1/models', ['--http1.0'])
  t.equal(offered.code, 35, 'no application protocol in common')
})

await t.test('a client that offers HTTP/2 is served HTTP/1.1', async (t) => {
  const gateway = await testGateway(t)
  const { curl } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
  const ran = await curl('/v1/models', ['--http2', '-v'])
  t.match(ran.err, /ALPN.*offers h2/i)
  t.match(ran.err, /ALPN.*server accepted http\/1\.1/i)
  t.equal(parts(ran).last, '200 1.1')
})

await t.test(
  'docs/protocol.md#llm-order a body of 30 MiB passes, one of 33 MiB is refused 413',
  async (t) => {
    const gateway = await testGateway(t)
    const { curl, file } = curlOf(t, gateway, await gateway.enroll('bot', ['llm.chat']))
    const large = file('large', chatOf(30 * MIB))
    const served = await curl('/v1/chat/completions', [...JSON_BODY, '--data-binary', `@${large}`])
    t.equal(parts(served).last, '200 1.1')
    t.equal(gateway.upstream.seen[0]?.body.length, 30 * MIB)

    const larger = file('larger', chatOf(33 * MIB))
    // With Expect, as curl does by itself, and without, as the SDKs do.
    for (const expect of [[], ['-H', 'Expect:']]) {
      const args = [...JSON_BODY, ...expect, '--data-binary', `@${larger}`]
      const refused = await curl('/v1/chat/completions', args)
      t.match(parts(refused).last, /^413 /, `${expect.join(' ')} ${refused.err}`)
      t.match(JSON.parse(parts(refused).body), { reason: 'body_too_large' })
    }
    t.equal(gateway.upstream.seen.length, 1)
  },
)

await t.test('docs/protocol.md#paths ids in admin paths are taken raw and percent-encoded', async (t) => {
  const gateway = await testGateway(t)
  const { curl } = curlOf(t, gateway, await gateway.enroll('bot', []))
  const secret = ['-H', `X-Admin-Secret: ${ADMIN_SECRET}`]
  for (const [id, capabilities] of [
    ['acme%3A%3Abot', ['llm.chat']],
    ['acme::bot', []],
    ['acme%3a%3abot', ['llm.chat', 'http.get']],
  ] as const) {
    const patch = ['-X', 'PATCH', ...secret, ...JSON_BODY, '-d', JSON.stringify({ capabilities })]
    const patched = await curl(`/v1/admin/agents/${id}/capabilities`, patch)
    t.equal(parts(patched).last, '200 1.1', id)
    const { body } = parts(await curl(`/v1/admin/agents/${id}`, secret))
    t.match(JSON.parse(body), { agent_id: 'acme::bot', capabilities })
  }
  t.equal(parts(await curl('/v1/admin/agents/acme%253A%253Abot', secret)).last, '404 1.1', 'decoded once')
})
