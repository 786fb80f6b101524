import { execFileSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { certSignKeyUsage, extendedKeyUsage, leafConstraints } from '../../../certs/authority/builder.ts'
import { type StampAuthority, stampAuthority, stampVerifier } from '../../../certs/timestamps/judge.ts'
import { verifyStamp } from '../../../certs/timestamps/signature.ts'
import { readStamp, StampError } from '../../../certs/timestamps/stamp.ts'
import { OID } from '../../../certs/x509/x509.ts'
import { caExtensions, DAY_MS, type OddCertificate, odd } from '../../support/certs/made.ts'
import { without } from '../../support/certs/openssl.ts'
import { der, FOR_STAMPS, granted, onlyStamps, stampRoot, testTsa } from '../../support/tsa.ts'

const skip = without('openssl')
const TEXT = 'example.org/acme/audit\n1\nAAAA\n'
const TODAY = { notBefore: Date.now() - DAY_MS, notAfter: Date.now() + DAY_MS }

const trusting = (...roots: readonly OddCertificate[]): readonly StampAuthority[] =>
  roots.map(({ pem }, at) => stampAuthority(`ca-${at}.pem`, pem))

/** Who has stamped the text, or why that does not hold; null where another authority has. */
async function verdictOn(
  stamp: Uint8Array,
  authorities: readonly StampAuthority[],
  text = TEXT,
): Promise<string | null> {
  try {
    const found = await stampVerifier(authorities)(stamp, text)
    return found && `${found.name} by ${found.by.map(({ given }) => given).join(' ')}`
  } catch (error) {
    if (!(error instanceof StampError)) throw error
    return error.message
  }
}

await t.test(
  'a time stamp by openssl chains to the CA that was given, with EC and RSA keys',
  { skip },
  async (t) => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
    for (const plan of [
      {},
      { key: rsa },
      { config: 'signer_digest = sha512' },
      { config: 'ess_cert_id_alg = sha1' },
    ]) {
      const tsa = await testTsa(t, plan)
      const stamp = tsa.over(TEXT)
      t.equal(await verdictOn(stamp, trusting(tsa.root)), 'Test TSA by ca-0.pem')
      t.equal(await verdictOn(tsa.forced(TEXT), trusting(tsa.root)), 'Test TSA by ca-0.pem')
      const file = join(t.testdirName, 'stamp.tsr')
      t.testdir()
      writeFileSync(file, stamp)
      writeFileSync(join(t.testdirName, 'text'), TEXT)
      const args = ['ts', '-verify', '-data', join(t.testdirName, 'text'), '-in', file, '-CAfile', tsa.ca]
      t.match(execFileSync('openssl', args, { encoding: 'utf8', stdio: 'pipe' }), 'Verification: OK')
    }
  },
)

await t.test(
  'an intermediate that comes with the stamp leads to the CA; a longer way is refused',
  { skip },
  async (t) => {
    const root = await stampRoot()
    const middle = await odd(
      { name: 'middle', extensions: [...caExtensions(0), onlyStamps(false)], ...TODAY },
      root,
    )
    const tsa = await testTsa(t, { root, issuer: middle })
    const stamp = tsa.over(TEXT)
    t.equal(await verdictOn(stamp, trusting(root)), 'Test TSA by ca-0.pem')
    t.equal(await verdictOn(stamp, trusting(middle)), 'Test TSA by ca-0.pem', 'a CA need not be a root')
    for (const [plan, said] of [
      [
        { extensions: [...caExtensions(0), extendedKeyUsage(OID.clientAuth)], ...TODAY },
        /does not allow time stamps/,
      ],
      [{ extensions: caExtensions(0), notBefore: 0, notAfter: Date.now() - DAY_MS }, /has expired/],
      [{ extensions: [leafConstraints()], ...TODAY }, /not a CA/],
    ] as const) {
      const issuer = await odd({ name: 'middle', ...plan }, root)
      t.match(await verdictOn((await testTsa(t, { root, issuer })).over(TEXT), trusting(root)), said)
    }
  },
)

await t.test(
  'of two authorities the one that has stamped is named; another CA has not',
  { skip },
  async (t) => {
    const tsa = await testTsa(t)
    const [other, namesake] = [await stampRoot('Another Root'), await stampRoot()]
    const stamp = tsa.over(TEXT)
    t.equal(await verdictOn(stamp, trusting(other, tsa.root)), 'Test TSA by ca-1.pem')
    t.equal(await verdictOn(stamp, trusting(other)), null)
    t.match(await verdictOn(stamp, trusting(namesake)), /^is not by the CA that it names/)
    t.equal(await verdictOn(stamp, []), null, 'without an authority the imprint alone is compared')
    t.equal(await verdictOn(stamp, [], `${TEXT} `), 'is of another text')
  },
)

await t.test(
  'a certificate that is not for time stamps alone, or was not valid then, is refused',
  { skip },
  async (t) => {
    const cases: readonly (readonly [string, Parameters<typeof testTsa>[1], RegExp])[] = [
      ['no EKU', { extensions: [leafConstraints()] }, /not for time stamps alone/],
      ['an EKU that is not critical', { extensions: [onlyStamps(false)] }, /not for time stamps alone/],
      ['an EKU with more', { extensions: [onlyStamps(true, OID.clientAuth)] }, /not for time stamps alone/],
      ['another EKU', { extensions: [extendedKeyUsage(OID.clientAuth)] }, /not for time stamps alone/],
      ['a CA', { extensions: [...caExtensions(0), onlyStamps(true)] }, /not for time stamps alone/],
      [
        'another use of its key',
        { extensions: [onlyStamps(true), certSignKeyUsage()] },
        /not for time stamps alone/,
      ],
      ['expired', { notBefore: 0, notAfter: Date.now() - 1_000 }, /not valid then/],
      ['not valid yet', { notBefore: Date.now() + DAY_MS / 2 }, /not valid then/],
    ]
    for (const [name, plan, said] of cases) {
      const tsa = await testTsa(t, plan)
      t.match(await verdictOn(tsa.forced(TEXT), trusting(tsa.root)), said, name)
    }
    const weak = generateKeyPairSync('rsa', { modulusLength: 1024 })
    const tsa = await testTsa(t, { key: weak })
    t.match(await verdictOn(tsa.forced(TEXT), trusting(tsa.root)), /by a key that is not/)
    const odder = await testTsa(t, { key: generateKeyPairSync('ec', { namedCurve: 'secp256k1' }) })
    t.match(await verdictOn(odder.forced(TEXT), trusting(odder.root)), /by a key that is not/)
    t.match(await verdictOn((await testTsa(t)).forced(TEXT, false), []), null)
    const loose = await testTsa(t)
    t.match(await verdictOn(loose.forced(TEXT, false), trusting(loose.root)), /does not bind/)
  },
)

await t.test(
  'no byte of what is signed, of the signature or of its certificate can be another',
  { skip },
  async (t) => {
    const tsa = await testTsa(t)
    const stamp = tsa.over(TEXT)
    const { content, signer, certificates } = readStamp(stamp)
    const [own = Buffer.alloc(0)] = certificates
    const judge = stampVerifier(trusting(tsa.root))
    let count = 0
    for (const part of [content, own, signer.signed.subarray(1), signer.signature]) {
      const start = stamp.indexOf(part)
      t.ok(start > 0)
      for (let at = start; at < start + part.length; at += 1) {
        const bytes = Buffer.from(stamp)
        bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at)
        const found = await judge(bytes, TEXT).catch((error: unknown) => {
          if (error instanceof StampError) return null
          throw error
        })
        if (found) t.fail(`the byte at ${at} may be another`)
        count += 1
      }
    }
    t.ok(count > 700)
  },
)

await t.test(
  'lengths may be left open; what is no stamp, too long or too deep costs nothing',
  { skip },
  async (t) => {
    const tsa = await testTsa(t)
    const stamp = tsa.over(TEXT)
    const open = (bytes: Uint8Array): Buffer =>
      Buffer.concat([Buffer.of(0x30, 0x80), bytes.subarray(4), Buffer.of(0, 0)])
    t.equal(await verdictOn(open(stamp), trusting(tsa.root)), 'Test TSA by ca-0.pem')
    const refused = der(0x30, der(0x30, der(0x02, Buffer.of(2))))
    for (const [bytes, said] of [
      [Buffer.alloc(0), 'cannot be read'],
      [stamp.subarray(0, -1), 'cannot be read'],
      [Buffer.concat([stamp, Buffer.of(0x05, 0)]), 'cannot be read'],
      [granted(Buffer.from('3000', 'hex')), 'cannot be read'],
      [refused, 'was refused with status 02'],
      [Buffer.alloc(65_537, 0x30), 'is longer than 65536 bytes'],
      [Buffer.alloc(65_536, Buffer.of(0x30, 0x80)), 'cannot be read'],
      [Buffer.alloc(65_536, Buffer.of(0x30, 0x82, 0xff, 0xff)), 'cannot be read'],
      [Buffer.alloc(65_536, 0x05), 'cannot be read'],
    ] as const) {
      const began = process.cpuUsage()
      t.equal(await verdictOn(bytes, trusting(tsa.root)), said)
      const { user, system } = process.cpuUsage(began)
      t.ok((user + system) / 1_000 < 20, 'no event loop is held for it')
    }
  },
)

await t.test(
  'a file without a CA is refused; what else stands in one is left out, and told',
  { skip },
  async (t) => {
    const leaf = await odd({ name: 'leaf', extensions: FOR_STAMPS, ...TODAY })
    t.throws(() => stampAuthority('x', ''), { message: /there is no certificate/ })
    t.throws(() => stampAuthority('x', leaf.pem), { message: /is no CA: .*CN=leaf/ })
    const tsa = await testTsa(t)
    const key = String(leaf.key.export({ type: 'pkcs8', format: 'pem' }))
    const damaged = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
    const cut = '-----BEGIN CERTIFICATE-----\nMIIB\n'
    const bundle = stampAuthority('x', `# ours\n\n${damaged}${leaf.pem}${cut}${key}\n${tsa.root.pem}`)
    t.match(bundle, {
      cas: { length: 1 },
      odd: [
        /^the block at line 3 cannot be read$/,
        /is no CA/,
        /cannot be read$/,
        /is no certificate: PRIVATE KEY$/,
      ],
    })
    t.equal(await verdictOn(tsa.over(TEXT), [bundle]), 'Test TSA by x')
    t.match(verifyStamp(readStamp(tsa.over(TEXT))).signer.name, 'Test TSA')
  },
)
