import { constants, createHmac, generateKeyPairSync, sign as signBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import {
  bench,
  boundTo,
  DOOR,
  deniedRows,
  dpopToken,
  jwsOf,
  oauthError,
  refusedWith,
} from '../../support/auth/bench.ts'
import { run, without } from '../../support/certs/openssl.ts'
import { proof, proofSigner } from '../../support/dpop.ts'
import { type Answered, testGateway } from '../../support/gateway.ts'
import { rawAnswer, requestBytes, statuses } from '../../support/raw.ts'
import { eventually } from '../../support/settled.ts'

// RFC 9449, row by row (docs/threats.md#rfc9449). What is refused is refused 401 with the challenge of §7.1;
// the body is docs/protocol.md#error-body's. The rows of one gateway stand together: it is started once.

await t.test('RFC 9449 §4.3 the shape of a proof', async (t) => {
  const b = await bench(t)
  const refusals = new Set<string>()
  const refuse = async (t: Test, name: string, dpop: string, sent = {}): Promise<void> => {
    const answered = await b.send(dpop, sent)
    refusedWith(t, answered, 'proof_invalid', name)
    refusals.add(answered.json?.request_id)
  }
  const accept = async (t: Test, name: string, dpop: string, sent = {}): Promise<void> => {
    const { status, text } = await b.send(dpop, sent)
    t.equal(status, 200, `${name} ${status === 200 ? '' : text}`)
  }

  await t.test('D-01 exactly one DPoP header', async (t) => {
    const one = b.sign()
    const two = b.sign()
    await refuse(t, 'two proofs in one line', `${one}, ${two}`)
    await refuse(t, 'one proof twice in one line', `${one}, ${one}`)
    for (const [name, second] of [
      ['two proofs', two],
      ['one proof twice', one],
    ] as const) {
      const lines = [`dpop: ${one}`, `DPoP: ${second}`, 'content-type: application/json']
      const answer = await rawAnswer(t, b.gateway, b.bot, requestBytes('POST', DOOR, lines, '{}'))
      t.strictSame(statuses(answer), [400], `${name} in two lines do not pass the framing gate (T8)`)
    }
    await accept(t, 'and one is one', one)
  })

  await t.test('D-02 the name of the header in any case, its value as it is', async (t) => {
    for (const name of ['DPOP', 'dpop', 'DpOp']) {
      const { status } = await b.send(null, { headers: { [name]: b.sign() } })
      t.equal(status, 200, name)
    }
    await refuse(t, 'upper case', b.sign().toUpperCase())
  })

  await t.test('D-03 the header is a token68', async (t) => {
    const good = b.sign()
    for (const [name, value] of [
      ['empty', ''],
      ['a space inside', good.replace('.', ' .')],
      ['quoted', `"${good}"`],
      ['padding inside', good.replace('.', '=.')],
      ['padding behind', `${good}=`],
      ['a scheme in front', `DPoP ${good}`],
    ] as const) {
      await refuse(t, name, value)
    }
  })

  await t.test('D-04 one well-formed JWT', async (t) => {
    const [head = '', body = '', tail = ''] = b.sign().split('.')
    const header = JSON.stringify({ typ: 'dpop+jwt', alg: 'ES256', jwk: b.signer.jwk })
    const claims = JSON.stringify(b.claims())
    const invalidUtf8 = Buffer.from(claims.replace('"jti":"', '"jti":"\xff'), 'latin1')
    for (const [name, value] of [
      ['one segment', head],
      ['two segments', `${head}.${body}`],
      ['four segments', `${head}.${body}.${tail}.${tail}`],
      ['five segments', `${head}.${body}.${tail}.${tail}.${tail}`],
      ['not base64url', `${head}.${body}.${tail.slice(0, -1)}*`],
      ['standard base64', `${head}.${body}.${Buffer.alloc(64, 255).toString('base64')}`],
      ['padded', `${head}.${body}==.${tail}`],
      ['the header an array', jwsOf(`[${header}]`, claims, b.signer)],
      ['the header a text', jwsOf('"dpop+jwt"', claims, b.signer)],
      ['the claims null', jwsOf(header, 'null', b.signer)],
      ['invalid UTF-8', jwsOf(header, invalidUtf8, b.signer)],
      ['a byte order mark', jwsOf(header, `\ufeff${claims}`, b.signer)],
      ['a claim twice', jwsOf(header, claims.replace('{', '{"htm":"POST",'), b.signer)],
      ['a header member twice', jwsOf(header.replace('{', '{"typ":"dpop+jwt",'), claims, b.signer)],
      ['a member of the key twice', jwsOf(header.replace('"jwk":{', '"jwk":{"kty":"EC",'), claims, b.signer)],
      ['more than 8 KiB', b.sign({ padding: 'x'.repeat(8_192) })],
    ] as const) {
      await refuse(t, name, value)
    }
    for (const variant of tailVariants(b.sign())) await refuse(t, 'T13 altered tail bits', variant)
    await accept(t, 'the bytes of a correct one', jwsOf(header, claims, b.signer))
  })

  await t.test('D-05 no member may be missing', async (t) => {
    for (const name of ['typ', 'alg', 'jwk']) await refuse(t, name, b.sign({}, { [name]: undefined }))
    for (const name of ['jti', 'htm', 'htu', 'iat']) await refuse(t, name, b.sign({ [name]: undefined }))
  })

  await t.test('D-06 each member has its type', async (t) => {
    const wrong = [
      '1',
      '0',
      '-1',
      '1.5',
      '1e400',
      'true',
      'null',
      '[]',
      '{}',
      '""',
      '"123"',
      '{"__proto__":{}}',
    ]
    const header = { typ: 'dpop+jwt', alg: 'ES256', jwk: b.signer.jwk }
    for (const value of wrong) {
      for (const name of ['typ', 'alg', 'jwk']) {
        const spoiled = withRaw(header, name, value)
        await refuse(t, `${name}: ${value}`, jwsOf(spoiled, JSON.stringify(b.claims()), b.signer))
      }
      for (const name of ['jti', 'htm', 'htu', 'iat', 'exp', 'nbf']) {
        // The one value that is right where it stands: a proof may be called 123.
        if (name === 'jti' && value === '"123"') continue
        // Not before the year 1970: so it is. RFC 7519 §2 lets an instant have a fraction.
        if (name === 'nbf' && /^(?:-?1|0|1\.5)$/.test(value)) continue
        const spoiled = withRaw(b.claims({ [name]: 0 }), name, value)
        await refuse(t, `${name}: ${value}`, jwsOf(JSON.stringify(header), spoiled, b.signer))
      }
      const answered = await b.send(
        jwsOf(JSON.stringify(header), withRaw(b.claims(), 'nonce', value), b.signer),
      )
      refusedWith(t, answered, 'use_dpop_nonce', `nonce: ${value}`)
    }
    await refuse(t, 'a list of jti', b.sign({ jti: ['a', 'b'] }))
    for (const name of ['__proto__', 'constructor', 'toString']) {
      await accept(
        t,
        `a claim named ${name}`,
        jwsOf(JSON.stringify(header), withRaw(b.claims(), name, '{}'), b.signer),
      )
    }
  })

  await t.test('D-07 typ is dpop+jwt and nothing like it', async (t) => {
    for (const typ of [
      'JWT',
      'at+jwt',
      'DPoP+JWT',
      'application/dpop+jwt',
      'dpop+jwt+wrongyousee',
      'dpop+jwt ',
    ]) {
      await refuse(t, typ, b.sign({}, { typ }))
    }
    const { json } = await b.token()
    await refuse(t, 'an access token in place of a proof', json.access_token)
    await refuse(t, 'a client assertion in place of a proof', b.sign({}, { typ: 'JWT', x5c: [] }))
  })

  await t.test('D-08 an asymmetric algorithm that is accepted, and the key’s own', async (t) => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const ed = generateKeyPairSync('ed25519')
    const signed = (alg: string, jwk: unknown, by: (bytes: Buffer) => Buffer): string => {
      const parts = [{ typ: 'dpop+jwt', alg, jwk }, b.claims()].map((part) =>
        Buffer.from(JSON.stringify(part)).toString('base64url'),
      )
      return `${parts.join('.')}.${by(Buffer.from(parts.join('.'))).toString('base64url')}`
    }
    const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' })
    const k256 = generateKeyPairSync('ec', { namedCurve: 'secp256k1' })
    const rsaJwk = rsa.publicKey.export({ format: 'jwk' })
    const edJwk = ed.publicKey.export({ format: 'jwk' })
    const pss = { key: rsa.privateKey, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 }
    const es = (key: typeof p384.privateKey, digest: string) => (bytes: Buffer) =>
      signBytes(digest, bytes, { key, dsaEncoding: 'ieee-p1363' })
    const hmac = (bytes: Buffer): Buffer =>
      createHmac('sha256', JSON.stringify(b.signer.jwk)).update(bytes).digest()
    await accept(
      t,
      'PS256',
      signed('PS256', rsaJwk, (bytes) => signBytes('sha256', bytes, pss)),
    )
    for (const name of ['EdDSA', 'Ed25519']) {
      await accept(
        t,
        name,
        signed(name, edJwk, (bytes) => signBytes(null, bytes, ed.privateKey)),
      )
    }
    for (const [name, dpop] of [
      ['none', signed('none', b.signer.jwk, () => Buffer.alloc(0))],
      ['None, with a signature', b.sign({}, { alg: 'None' })],
      ['HS256 with the public key as its secret', signed('HS256', b.signer.jwk, hmac)],
      ['HS256 with a secret in the key', signed('HS256', { kty: 'oct', k: 'c2VjcmV0' }, hmac)],
      ['RS256', signed('RS256', rsaJwk, (bytes) => signBytes('sha256', bytes, rsa.privateKey))],
      [
        'RS256 that calls itself PS256',
        signed('PS256', rsaJwk, (bytes) => signBytes('sha256', bytes, rsa.privateKey)),
      ],
      ['ES384', signed('ES384', p384.publicKey.export({ format: 'jwk' }), es(p384.privateKey, 'sha384'))],
      ['ES256K', signed('ES256K', k256.publicKey.export({ format: 'jwk' }), es(k256.privateKey, 'sha256'))],
      ['ES256 with an RSA key', b.sign({}, { jwk: rsaJwk })],
      ['PS256 with an EC key', b.sign({}, { alg: 'PS256' })],
      ['EdDSA with an EC key', b.sign({}, { alg: 'EdDSA' })],
      ['Ed25519 with an EC key', b.sign({}, { alg: 'Ed25519' })],
      ['Ed448 with an Ed25519 key', signed('Ed448', edJwk, (bytes) => signBytes(null, bytes, ed.privateKey))],
      ['es256', b.sign({}, { alg: 'es256' })],
    ] as const) {
      await refuse(t, name, dpop)
    }
  })

  await t.test('D-09 the signature holds with the key in the header', async (t) => {
    const good = b.sign()
    const [head = '', body = '', tail = ''] = good.split('.')
    const bytes = Buffer.from(tail, 'base64url')
    const signedAs = (signature: Buffer): string => `${head}.${body}.${signature.toString('base64url')}`
    for (let i = 0; i < 64; i += 1) {
      const flipped = Buffer.from(bytes)
      flipped[i] = (flipped[i] ?? 0) ^ 1
      await refuse(t, `byte ${i} flipped`, signedAs(flipped))
    }
    const zero = Buffer.alloc(32)
    const n = Buffer.from('ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551', 'hex')
    const r = bytes.subarray(0, 32)
    const s = bytes.subarray(32)
    const der = signBytes('sha256', Buffer.from(`${head}.${body}`), b.signer.privateKey)
    for (const [name, signature] of [
      ['r = 0', Buffer.concat([zero, s])],
      ['s = 0', Buffer.concat([r, zero])],
      ['both 0', Buffer.concat([zero, zero])],
      ['r = n', Buffer.concat([n, s])],
      ['63 bytes', bytes.subarray(0, 63)],
      ['65 bytes', Buffer.concat([bytes, Buffer.alloc(1)])],
      ['DER', der],
    ] as const) {
      await refuse(t, name, signedAs(signature))
    }
    await refuse(t, 'by another key', proof(proofSigner(), b.claims(), { jwk: b.signer.jwk }))
    const { x, y } = b.signer.jwk
    const long = Buffer.concat([Buffer.alloc(1), Buffer.from(String(x), 'base64url')]).toString('base64url')
    for (const [name, more] of [
      ['a point off the curve', { x: y, y: x }],
      ['the point (0, 0)', { x: zero.toString('base64url'), y: zero.toString('base64url') }],
      ['x of 31 bytes', { x: Buffer.from(String(x), 'base64url').subarray(1).toString('base64url') }],
      ['x of 33 bytes, the first of them zero', { x: long }],
    ] as const) {
      await refuse(t, name, b.sign({}, { jwk: { ...b.signer.jwk, ...more } }))
    }
    await accept(t, 'and as it was', good)
  })

  await t.test('D-10 no private key, and nothing to fetch one from', async (t) => {
    for (const name of ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']) {
      await refuse(t, name, b.sign({}, { jwk: { ...b.signer.jwk, [name]: 'AQAB' } }))
    }
    const before = b.gateway.upstream.seen.length
    for (const name of ['jku', 'x5u']) {
      await refuse(t, name, b.sign({}, { [name]: `${b.gateway.upstream.url}/keys` }))
      await refuse(
        t,
        `${name} alone`,
        b.sign({}, { jwk: undefined, [name]: `${b.gateway.upstream.url}/keys` }),
      )
    }
    // Inside the key it is one more unknown member, and not followed either.
    await accept(
      t,
      'x5u in the key',
      b.sign({}, { jwk: { ...b.signer.jwk, x5u: `${b.gateway.upstream.url}/keys` } }),
    )
    const fetched = b.gateway.upstream.seen.slice(before).filter(({ url }) => url === '/keys')
    t.strictSame(fetched, [], 'nothing was fetched')
  })

  await t.test('D-11 htm is the method', async (t) => {
    for (const htm of ['GET', 'post', 'Post', 'POST ', ' POST', 'PUT', 'POST,GET', '*']) {
      await refuse(t, JSON.stringify(htm), b.sign({ htm }))
    }
  })

  await t.test('D-18 a jti of up to 256 characters, and no longer', async (t) => {
    await accept(t, '256', b.sign({ jti: 'j'.repeat(256) }))
    await refuse(t, '257', b.sign({ jti: 'j'.repeat(257) }))
    await refuse(t, 'empty', b.sign({ jti: '' }))
  })

  await t.test('D-28 unknown members are ignored, unless they are critical', async (t) => {
    await accept(t, 'unknown', b.sign({ unknown: { a: 1 } }, { unknown: [1] }))
    await refuse(t, 'crit', b.sign({}, { crit: ['unknown'], unknown: 1 }))
    await refuse(t, 'crit, empty', b.sign({}, { crit: [] }))
  })

  await t.test('D-16 RFC 7519 §4.1.4 exp and nbf hold where they are present', async (t) => {
    const now = Math.floor(b.time.at / 1000)
    await accept(t, 'a valid pair', b.sign({ exp: now + 60, nbf: now - 60 }))
    await refuse(t, 'expired', b.sign({ exp: now - 60 }))
    await refuse(t, 'not yet', b.sign({ nbf: now + 60 }))
    const old = await b.send(b.sign({ exp: now - 75 }))
    t.match(old.json.message, /^The DPoP proof expired 7[56] s ago by the clock of this gateway \(/)
    const early = await b.send(b.sign({ nbf: now + 75 }))
    t.match(
      early.json.message,
      /^The DPoP proof is not valid for another 7[45] s by the clock of this gateway/,
    )
  })

  await t.test('§6 each of these refusals is one denied row, or has its place in one for many', async (t) => {
    const rows = await deniedRows(b.gateway)
    t.ok(refusals.size > 200, `${refusals.size} refusals`)
    const elsewhere = await eventually(
      () => new Set(b.gateway.log.filter((line) => 'summarised' in line).map(({ reqId }) => String(reqId))),
      (ids) => ids.size >= refusals.size - rows.size,
    )
    t.strictSame(
      [...refusals].filter((id) => rows.has(id) === elsewhere.has(id)),
      [],
    )
  })
})

await t.test('RFC 9449 §4.3-9 the URL of a proof', async (t) => {
  const b = await bench(t, {
    settings: { MCP_PROXY_PUBLIC_URLS: 'https://gateway.example,https://127.0.0.1:9443' },
  })
  const with_ = async (htu: string): Promise<number> => (await b.send(b.sign({ htu }))).status

  await t.test('D-12 spellings of it are accepted', async (t) => {
    for (const htu of [
      `https://gateway.example${DOOR}`,
      `HTTPS://GATEWAY.EXAMPLE${DOOR}`,
      `https://gateway.example:443${DOOR}`,
      `https://gateway.example${DOOR}?q#f`,
      `https://gateway.example/v1/chat/%63ompletions`,
      `https://gateway.example/v1/./chat/completions`,
      `https://127.0.0.1:9443${DOOR}`,
    ]) {
      t.equal(await with_(htu), 200, htu)
    }
  })

  await t.test('D-12 other URLs are refused', async (t) => {
    for (const htu of [
      'https://gateway.example/v1/messages',
      'https://gateway.example/v1/auth/token',
      `https://gateway.example${DOOR}/`,
      `https://gateway.example/${DOOR}`,
      `https://gateway.example:8443${DOOR}`,
      `https://127.0.0.1${DOOR}`,
      `https://other.example${DOOR}`,
      `https://gateway.example.${DOOR}`,
      `http://gateway.example${DOOR}`,
      `https://user@gateway.example${DOOR}`,
      `https://gateway.example@other.example${DOOR}`,
      `//gateway.example${DOOR}`,
      DOOR,
      `https://g\u0430teway.example${DOOR}`,
      `https://xn--gteway-4fg.example${DOOR}`,
      `https://%67ateway.example${DOOR}`,
      `https://gateway.example${DOOR}?${'q'.repeat(2_048)}`,
      '',
      // Where this gateway really listens is no public URL of it here.
      b.gateway.url + DOOR,
    ]) {
      refusedWith(t, await b.send(b.sign({ htu })), 'proof_invalid', JSON.stringify(htu).slice(0, 60))
    }
  })

  await t.test('D-12 no header of the request has a say in it', async (t) => {
    const forged = [
      ['host: other.example'],
      ['host: localhost', 'x-forwarded-host: other.example', 'x-forwarded-proto: https'],
      ['host: localhost', 'forwarded: host=other.example;proto=https'],
      ['host: localhost', 'x-original-url: https://other.example/'],
    ]
    for (const [hosts, htu, expected] of forged.flatMap((lines) => [
      [lines, `https://other.example${DOOR}`, 401] as const,
      [lines, `https://gateway.example${DOOR}`, 200] as const,
    ])) {
      const body = '{"model":"gpt-test","messages":[{"role":"user","content":"hi"}]}'
      const lines = [
        ...hosts.slice(1),
        'content-type: application/json',
        'connection: close',
        `dpop: ${b.sign({ htu })}`,
      ]
      const bytes = requestBytes('POST', DOOR, lines, body).replace('host: localhost', hosts[0] ?? '')
      t.strictSame(
        statuses(await rawAnswer(t, b.gateway, b.bot, bytes)),
        [expected],
        `${hosts.join(', ')}: ${htu}`,
      )
    }
  })
})

await t.test('RFC 9449 §8, §9 nonces', async (t) => {
  const b = await bench(t)

  await t.test('D-13 a proof must carry one of ours, fresh, and of this kind of door', async (t) => {
    const token = String((await b.askToken(null)).headers['dpop-nonce'])
    for (const [name, nonce] of [
      ['none', undefined],
      ['made up', 'made-up'],
      ['empty', ''],
      ['of the token endpoint', token],
    ] as const) {
      const answered = await b.send(b.sign({ nonce }))
      refusedWith(t, answered, 'use_dpop_nonce', name)
      t.match(answered.headers['dpop-nonce'], /^[\w-]{22}$/, `${name}: exactly one is handed out`)
      t.equal(
        (await b.send(b.sign({ nonce: answered.headers['dpop-nonce'] }))).status,
        200,
        `${name}: and it is good`,
      )
    }
    const calls = b.gateway.upstream.seen.filter(({ url }) => url === '/v1/chat/completions')
    t.equal(calls.length, 4, 'only the good ones reached the provider')
  })

  await t.test('D-13 at the token endpoint it is 400 use_dpop_nonce', async (t) => {
    const answered = await b.askToken(b.sign({ htu: `${b.gateway.url}/v1/auth/token`, nonce: b.nonce() }))
    oauthError(t, answered, [400, 'use_dpop_nonce'], 'a resource nonce')
    t.match(answered.headers['dpop-nonce'], /^[\w-]{22}$/)
    t.not(answered.headers['dpop-nonce'], b.nonce())
  })

  await t.test('D-14 every answer hands out one, of NQCHAR, and may not be stored', async (t) => {
    for (const answered of [
      await b.send(b.sign()),
      await b.send(null),
      await b.send('x'),
      await b.send(null, { body: 'no JSON' }),
      await b.token(),
    ]) {
      const { 'dpop-nonce': nonce, 'cache-control': stored } = answered.headers
      t.equal(stored, 'no-store')
      // Node would join two of them with a comma, which is not of NQCHAR here.
      t.match(nonce, /^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]+$/)
    }
  })

  await t.test('D-13 D-32 proofs made beforehand are of no use once the nonce has changed', async (t) => {
    const made = Array.from({ length: 20 }, () => b.sign({ iat: Math.floor(b.time.at / 1000) + 640 }))
    t.equal((await b.send(b.sign())).status, 200, 'now')
    // From the start of a step to that of the next one but one.
    b.time.at += 300_000
    t.equal((await b.send(b.sign())).status, 200, 'the nonce before is still good')
    const { headers } = await b.send(null)
    t.not(headers['dpop-nonce'], b.nonce(), 'D-14 while the new one is handed out already')
    b.time.at += 340_000
    for (const dpop of made) refusedWith(t, await b.send(dpop), 'use_dpop_nonce', 'a nonce of two steps ago')
    await b.renew()
    t.equal((await b.send(b.sign())).status, 200)
  })
})

await t.test('RFC 9449 §11.1 time and replay', async (t) => {
  const b = await bench(t)
  const seconds = (): number => Math.floor(b.time.at / 1000)

  await t.test(
    'D-15 a proof is of the last minute, or of the next, if a fresh nonce vouches for it',
    async (t) => {
      // A whole second, so that the edges are where they are said to be.
      b.time.at = Math.ceil(b.time.at / 1000) * 1000
      for (const seconds_ of [-60, -10, 0, 8, 10, 11, 60]) {
        t.equal((await b.send(b.sign({ iat: seconds() + seconds_ }))).status, 200, `${seconds_} s`)
      }
      for (const seconds_ of [-3_600, -62, -61, 61, 3_600]) {
        const answer = await b.send(b.sign({ iat: seconds() + seconds_ }))
        refusedWith(t, answer, 'proof_invalid', `${seconds_} s`)
        const gap = `${Math.abs(seconds_)} s ${seconds_ > 0 ? 'ahead of' : 'behind'} the clock of this gateway`
        t.match(answer.json, { message: gap, detail: { clock_difference_s: seconds_ } })
        t.equal(Date.parse(String(answer.headers.date)), b.time.at, 'and Date says that clock')
      }
      for (const nonce of [undefined, 'stale']) {
        refusedWith(
          t,
          await b.send(b.sign({ iat: seconds() + 11, nonce })),
          'use_dpop_nonce',
          'nothing vouches',
        )
      }
      const other = await b.send(b.sign({ iat: seconds() + 61, htm: 'PUT' }))
      t.match(other.json.message, /^The DPoP proof is not valid for this request/, 'not the clock alone')
      refusedWith(t, await b.send(b.sign({ iat: b.time.at })), 'proof_invalid', 'iat in milliseconds')
    },
  )

  await t.test('D-17 a proof passes once', async (t) => {
    const used = b.sign()
    t.equal((await b.send(used)).status, 200)
    const again = await b.send(used)
    refusedWith(t, again, 'proof_invalid', 'again')
    t.match((await deniedRows(b.gateway)).get(again.json.request_id), {
      reason: 'proof_invalid',
      refused_by: 'dpop',
    })
    refusedWith(t, await b.send(used, { path: '/v1/llm/chat' }), 'proof_invalid', 'on another path')
    refusedWith(t, await b.send(malleated(used)), 'proof_invalid', 'as (r, n−s)')
    for (const variant of tailVariants(used)) {
      refusedWith(t, await b.send(variant), 'proof_invalid', 'with altered tail bits')
    }
    const jti = 'the same for two keys'
    t.equal((await b.send(b.sign({ jti }))).status, 200)
    refusedWith(t, await b.send(b.sign({ jti })), 'proof_invalid', 'the same jti in another proof')
    t.equal(
      (await b.send(proof(proofSigner(), b.claims({ jti })))).status,
      200,
      'of another key it is another jti',
    )
  })

  await t.test('D-17 a proof for a door that records no decision passes once too', async (t) => {
    const path = '/v1/models'
    const used = b.sign({ htm: 'GET', htu: b.gateway.url + path })
    t.equal((await b.send(used, { method: 'GET', path })).status, 200)
    refusedWith(t, await b.send(used, { method: 'GET', path }), 'proof_invalid', 'again')
    const atToken = b.sign({
      htu: `${b.gateway.url}/v1/auth/token`,
      nonce: (await b.askToken(null)).headers['dpop-nonce'],
    })
    t.equal((await b.askToken(atToken)).status, 200)
    oauthError(t, await b.askToken(atToken), [400, 'invalid_dpop_proof'], 'again at the token endpoint')
  })

  await t.test('D-17 of a hundred at once exactly one passes', async (t) => {
    const served = b.gateway.upstream.seen.length
    const used = b.sign()
    const calls = Array.from({ length: 100 }, () =>
      b.gateway.call(b.bot, 'POST', DOOR, {
        headers: { dpop: used },
        body: '{"model":"gpt-test","messages":[]}',
      }),
    )
    const answered = await Promise.all(calls)
    t.equal(answered.filter(({ status }) => status === 200).length, 1)
    t.equal(answered.filter(({ json }) => json?.reason === 'proof_invalid').length, 99)
    t.equal(b.gateway.upstream.seen.length - served, 1, 'and one reached the provider')
  })

  await t.test(
    'D-17 a proof from the future is no second one once it would have been forgotten',
    async (t) => {
      b.time.at = Math.ceil(b.time.at / 1000) * 1000
      const used = b.sign({ iat: seconds() + 10 })
      t.equal((await b.send(used)).status, 200)
      for (const later of [60_000, 10_000, 500, 500]) {
        b.time.at += later
        await b.renew()
        refusedWith(t, await b.send(used), 'proof_invalid', `${later} ms later`)
      }
    },
  )
})

await t.test('D-17 a used proof stays used after a restart on the same data directory', async (t) => {
  // Two gateways on one directory there cannot be (its lease), so that two replicas see one claim is the
  // database's word: single_uses has one row for a digest, and the second insert fails whoever makes it
  // (test/db).
  const first = await bench(t, { verify: false })
  const { dataDir } = first.gateway.settings
  const used = first.sign()
  const unused = first.sign()
  t.equal((await first.send(used)).status, 200)
  await first.gateway.close(0)
  const again = await testGateway(t, {
    clock: () => first.time.at,
    settings: { MCP_PROXY_DATA_DIR: dataDir, MCP_PROXY_PUBLIC_URLS: first.gateway.url },
  })
  const send = (dpop: string): Promise<Answered> =>
    again.call(first.bot, 'POST', DOOR, { headers: { dpop }, body: '{"model":"gpt-test","messages":[]}' })
  refusedWith(t, await send(used), 'proof_invalid', 'used before the restart')
  t.equal((await send(unused)).status, 200, 'D-13 and the nonce of before is good')
})

await t.test('RFC 9449 §7 proofs and access tokens', async (t) => {
  const b = await bench(t)
  const { json: issued } = await b.token()
  const token: string = issued.access_token
  const proven = (over = {}): string => b.sign({ ...boundTo(token), ...over })
  const headers = dpopToken(token)

  await t.test('D-29 the token says what it is bound to', async (t) => {
    const answered = await b.token()
    t.equal(answered.headers['cache-control'], 'no-store')
    t.match(answered.json, { token_type: 'DPoP', expires_in: 900 })
    const claims = JSON.parse(Buffer.from(answered.json.access_token.split('.')[1], 'base64url').toString())
    t.equal(claims.cnf.jkt, b.signer.jkt)
    t.equal((await b.token(null)).json.token_type, 'Bearer')
  })

  await t.test('D-19 ath is the digest of the token', async (t) => {
    t.equal((await b.send(proven(), { headers })).status, 200)
    const other = (await b.token()).json.access_token
    const ath = boundTo(token).ath
    for (const [name, wrong] of [
      ['missing', undefined],
      ['wrong', 'x'.repeat(43)],
      ['of another token', boundTo(other).ath],
      ['padded', `${ath}=`],
      ['as base64', Buffer.from(ath, 'base64url').toString('base64')],
      ['as hex', Buffer.from(ath, 'base64url').toString('hex')],
      ['a list', [ath]],
    ] as const) {
      refusedWith(t, await b.send(proven({ ath: wrong }), { headers }), 'proof_invalid', name)
    }
  })

  await t.test('D-20 the proof is by the key that the token is bound to', async (t) => {
    const other = proof(proofSigner(), b.claims(boundTo(token)))
    refusedWith(t, await b.send(other, { headers }), 'token_invalid', 'by another key')
  })

  await t.test('D-21 a bound token is nothing without a proof', async (t) => {
    refusedWith(t, await b.send(null, { headers }), 'token_invalid', 'no proof')
    refusedWith(t, await b.send('x', { headers }), 'proof_invalid', 'no proof worth the name')
  })

  await t.test('D-22 §7.2 a bound token is none as Bearer', async (t) => {
    const bearer = { authorization: `Bearer ${token}` }
    refusedWith(t, await b.send(null, { headers: bearer }), 'token_invalid', 'without a proof')
    refusedWith(t, await b.send(proven(), { headers: bearer }), 'token_invalid', 'with a proof')
  })

  await t.test('D-23 what is bound to no key is none as DPoP', async (t) => {
    const loose = (await b.token(null)).json.access_token
    const sent = { headers: dpopToken(loose) }
    refusedWith(t, await b.send(b.sign(boundTo(loose)), sent), 'token_invalid', 'with a proof')
    refusedWith(t, await b.send(null, sent), 'token_invalid', 'without one')
  })

  await t.test('D-24 two Authorization headers are a bad request', async (t) => {
    const lines = [`authorization: Bearer ${token}`, `authorization: DPoP ${token}`]
    for (const [first, second] of [lines, lines.toReversed(), [lines[1], lines[1]]]) {
      const sent = [first ?? '', second ?? '', `dpop: ${proven()}`, 'content-type: application/json']
      t.strictSame(
        statuses(await rawAnswer(t, b.gateway, b.bot, requestBytes('POST', DOOR, sent, '{}'))),
        [400],
      )
    }
  })

  await t.test('D-25 RFC 6750 §3.1 without credentials the challenge names no error', async (t) => {
    const { status, headers: answer, json } = await b.send(null, { who: null })
    t.strictSame([status, json.reason], [401, 'certificate_required'])
    t.equal(answer['www-authenticate'], 'DPoP algs="ES256 PS256 EdDSA Ed25519"')
  })

  await t.test('D-26 the scheme in any case, one or more spaces, no tab', async (t) => {
    for (const authorization of [`dpop ${token}`, `DPOP ${token}`, `DPoP  ${token}`]) {
      t.equal((await b.send(proven(), { headers: { authorization } })).status, 200, authorization.slice(0, 6))
    }
    for (const authorization of [
      `DPoP\t${token}`,
      `DPoP${token}`,
      'DPoP',
      `DPoP ${token} ${token}`,
      `DPoP "${token}"`,
    ]) {
      refusedWith(
        t,
        await b.send(proven(), { headers: { authorization } }),
        'token_invalid',
        authorization.slice(0, 6),
      )
    }
  })

  await t.test('D-27 a token stands in Authorization and nowhere else', async (t) => {
    const nobody = { who: null }
    const reasons = [
      await b.send(proven(), { ...nobody, headers: { 'proxy-authorization': `DPoP ${token}` } }),
      await b.send(proven(), { ...nobody, path: `${DOOR}?access_token=${token}` }),
      await b.send(proven(), { ...nobody, body: { model: 'gpt-test', messages: [], access_token: token } }),
      await b.send(proven(), { ...nobody, headers: { cookie: `access_token=${token}` } }),
    ].map(({ status, json }) => [status, json.reason])
    t.strictSame(
      reasons,
      Array.from(reasons, () => [401, 'certificate_required']),
    )
    const before = b.gateway.upstream.seen.length
    // Beside a certificate it changes nothing: the proof is one for a call without a token, of any key.
    const answered = await b.send(b.sign(), { headers: { 'proxy-authorization': `DPoP ${token}` } })
    t.equal(answered.status, 200)
    t.notMatch(JSON.stringify(b.gateway.upstream.seen.slice(before)), token, 'and it is not handed on')
  })

  await t.test('D-36 §9 the provider sees neither proof nor token', async (t) => {
    const before = b.gateway.upstream.seen.length
    t.equal((await b.send(proven(), { headers })).status, 200)
    const [seen] = b.gateway.upstream.seen.slice(before)
    t.equal(seen?.headers.dpop, undefined)
    t.equal(seen?.headers.authorization, 'Bearer sk-upstream-openai')
    t.notMatch(JSON.stringify(seen), token)
  })

  await t.test('D-33 §11.8 a proof says nothing of the body', async (t) => {
    const { status } = await b.send(proven(), {
      headers,
      body: { model: 'gpt-test', messages: [], other: 1 },
    })
    t.equal(status, 200)
  })
})

await t.test(
  'D-30 RFC 9449 §5 an invalid proof at the token endpoint is 400 invalid_dpop_proof',
  async (t) => {
    const b = await bench(t)
    const htu = `${b.gateway.url}/v1/auth/token`
    const nonce = (await b.askToken(null)).headers['dpop-nonce']
    const sign = (over = {}, header = {}): string => b.sign({ htu, nonce, ...over }, header)
    const now = Math.floor(b.time.at / 1000)
    const good = sign()
    for (const [name, dpop] of [
      ['D-01', `${good}, ${good}`],
      ['D-02', good.toUpperCase()],
      ['D-03', `"${good}"`],
      ['D-04', good.slice(0, good.lastIndexOf('.'))],
      ['D-05 typ', sign({}, { typ: undefined })],
      ['D-05 jti', sign({ jti: undefined })],
      ['D-06', sign({ iat: String(now) })],
      ['D-07', sign({}, { typ: 'JWT' })],
      ['D-08', sign({}, { alg: 'none' })],
      ['D-09', `${good.slice(0, -6)}AAAAAA`],
      ['D-10', sign({}, { jwk: { ...b.signer.jwk, d: 'AQAB' } })],
      ['D-11', sign({ htm: 'GET' })],
      ['D-12', sign({ htu: b.gateway.url + DOOR })],
      ['D-15 old', sign({ iat: now - 62 })],
      ['D-15 ahead', sign({ iat: now + 62 })],
      ['D-16', sign({ exp: now - 60 })],
      ['D-18', sign({ jti: 'j'.repeat(257) })],
    ] as const) {
      oauthError(t, await b.askToken(dpop), [400, 'invalid_dpop_proof'], name)
    }
    oauthError(t, await b.askToken(sign({ nonce: 'x' })), [400, 'use_dpop_nonce'], 'D-13')
    t.equal((await b.askToken(good)).status, 200)
  },
)

await t.test('D-37 no early data', { skip: without('openssl') }, async (t) => {
  const b = await bench(t)
  const directory = t.testdir({
    'ca.crt': b.gateway.ca,
    'bot.crt': b.bot.cert,
    'bot.key': b.bot.key,
    request: requestBytes('GET', '/health', ['connection: close']),
  })
  const { port } = new URL(b.gateway.url)
  const own = ['-CAfile', 'ca.crt', '-cert', 'bot.crt', '-key', 'bot.key', '-servername', 'localhost']
  const call = (more: readonly string[]): Promise<{ text: string }> =>
    run('openssl', directory, ['s_client', '-connect', `127.0.0.1:${port}`, ...own, ...more])
  const first = await call(['-sess_out', 'session'])
  t.match(first.text, 'New, TLSv1.3')
  const kept = existsSync(join(directory, 'session')) ? ['-sess_in', 'session'] : []
  const { text } = await call([...kept, '-early_data', 'request'])
  t.match(text, 'Early data was not sent')
  t.notMatch(text, /Early data was accepted/)
})

/** A JSON object with one member given as its text. */
function withRaw(members: Record<string, unknown>, name: string, value: string): string {
  const { [name]: _, ...others } = members
  return `${JSON.stringify(others).slice(0, -1)},"${name}":${value}}`
}

/** Other texts that decode to the very same signature. */
function tailVariants(jws: string): readonly string[] {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  const at = alphabet.indexOf(jws.slice(-1))
  // 64 bytes end in a character of which two bits count.
  return [1, 2, 15].map((bits) => jws.slice(0, -1) + alphabet.charAt((at & 0x30) | bits))
}

/** The other signature that holds for the same text: (r, n−s). */
function malleated(jws: string): string {
  const n = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n
  const dot = jws.lastIndexOf('.')
  const bytes = Buffer.from(jws.slice(dot + 1), 'base64url')
  const s = (n - BigInt(`0x${bytes.subarray(32).toString('hex')}`)).toString(16).padStart(64, '0')
  const signature = Buffer.concat([bytes.subarray(0, 32), Buffer.from(s, 'hex')])
  return `${jws.slice(0, dot + 1)}${signature.toString('base64url')}`
}
