import { execFileSync } from 'node:child_process'
import { hash, type KeyObject } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { Extension, ExtKeyUsage } from 'pkijs'
import type { Test } from 'tap'
import { digitalSignatureKeyUsage, leafConstraints } from '../../certs/authority/builder.ts'
import { readStamp } from '../../certs/timestamps/stamp.ts'
import { OID } from '../../certs/x509/x509.ts'
import { openDatabase } from '../../db/engine.ts'
import { caExtensions, DAY_MS, type OddCertificate, odd } from './certs/made.ts'
import type { TestGateway } from './gateway.ts'

/** A time-stamping authority on this machine. openssl makes and signs its stamps. */
export interface Tsa {
  /** The file of its CA. PEM. */
  readonly ca: string
  readonly root: OddCertificate
  readonly own: OddCertificate
  /** Answers a TimeStampReq. */
  readonly reply: (query: Buffer) => Buffer
  /** A time stamp over a text. */
  readonly over: (text: string) => Buffer
  /** The same, signed whoever the certificate is for: openssl's own time stamps ask. `bound`: with its ESSCertIDv2. */
  readonly forced: (text: string, bound?: boolean) => Buffer
}

interface Plan {
  readonly name?: string
  readonly root?: OddCertificate
  readonly issuer?: OddCertificate
  readonly extensions?: readonly Extension[]
  readonly notBefore?: number
  readonly notAfter?: number
  readonly key?: { readonly publicKey: KeyObject; readonly privateKey: KeyObject }
  /** Of a line of openssl's configuration. */
  readonly config?: string
}

/** An extendedKeyUsage of time stamps, and of more. */
export const onlyStamps = (critical: boolean, ...more: readonly string[]): Extension =>
  new Extension({
    extnID: OID.extendedKeyUsage,
    critical,
    extnValue: new ExtKeyUsage({ keyPurposes: [OID.timeStamping, ...more] }).toSchema().toBER(),
  })

/** What a certificate for time stamps carries. */
export const FOR_STAMPS: readonly Extension[] = [
  leafConstraints(),
  digitalSignatureKeyUsage(),
  onlyStamps(true),
]

/** A CA for time stamps, valid today. */
export const stampRoot = (name = 'Test TSA Root'): Promise<OddCertificate> =>
  odd({ name, extensions: caExtensions(1), notBefore: Date.now() - DAY_MS, notAfter: Date.now() + DAY_MS })

/** Makes an authority with a certificate of its own. */
export async function testTsa(t: Test, plan: Plan = {}): Promise<Tsa> {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-tsa-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const root = plan.root ?? (await stampRoot())
  const issuer = plan.issuer ?? root
  const { name = 'Test TSA', extensions = FOR_STAMPS } = plan
  const dates = {
    notBefore: plan.notBefore ?? Date.now() - DAY_MS,
    notAfter: plan.notAfter ?? Date.now() + DAY_MS,
  }
  const own = await odd({ name, extensions, ...dates, ...(plan.key && { key: plan.key }) }, issuer)
  const put = (file: string, text: string | Buffer): string => {
    writeFileSync(join(directory, file), text)
    return join(directory, file)
  }
  const run = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' })
  }
  const ca = put('ca.pem', root.pem)
  put('own.pem', own.pem)
  put('own.key', own.key.export({ type: 'pkcs8', format: 'pem' }).toString())
  put('chain.pem', issuer.pem)
  put('serial', '01\n')
  put('tsa.cnf', `${CONFIG}${plan.config ?? ''}\n`)
  const signer = ['-inkey', 'own.key', '-signer', 'own.pem']
  const reply = (query: Buffer): Buffer => {
    put('query.tsq', query)
    run(
      ...['ts', '-reply', '-queryfile', 'query.tsq', '-config', 'tsa.cnf', '-section', 'tsa'],
      ...[...signer, '-chain', 'chain.pem', '-out', 'reply.tsr'],
    )
    return readFileSync(join(directory, 'reply.tsr'))
  }
  const queryFor = (text: string): Buffer => {
    put('text', text)
    run('ts', '-query', '-data', 'text', '-sha256', '-cert', '-out', 'made.tsq')
    return readFileSync(join(directory, 'made.tsq'))
  }
  return {
    ca,
    root,
    own,
    reply,
    over: (text) => reply(queryFor(text)),
    forced: (text, bound = true) => {
      put('info', infoOver(text))
      const cms = ['cms', '-sign', '-binary', '-nodetach', '-econtent_type', '1.2.840.113549.1.9.16.1.4']
      run(
        ...[
          ...cms,
          '-in',
          'info',
          '-outform',
          'DER',
          '-out',
          'token',
          '-md',
          'sha256',
          ...(bound ? ['-cades'] : []),
        ],
        ...signer,
      )
      return granted(readFileSync(join(directory, 'token')))
    },
  }
}

const CONFIG = `
[tsa]
serial = ./serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
`

/** A TSTInfo of this instant (RFC 3161, section 2.4.2). */
function infoOver(text: string): Buffer {
  const at = new Date().toISOString().replaceAll(/[-:T]|\.\d+/g, '')
  const sha256 = Buffer.from('300d06096086480165030402010500', 'hex')
  const imprint = der(0x30, sha256, der(0x04, hash('sha256', text, 'buffer')))
  const policy = Buffer.from('06042a030401', 'hex')
  return der(
    0x30,
    der(0x02, Buffer.of(1)),
    policy,
    imprint,
    der(0x02, Buffer.of(7)),
    der(0x18, Buffer.from(at)),
  )
}

/** The answer that grants a token. */
export const granted = (token: Buffer): Buffer => der(0x30, der(0x30, der(0x02, Buffer.of(0))), token)

/** A value of ASN.1. */
export function der(tag: number, ...content: readonly Buffer[]): Buffer {
  const whole = Buffer.concat(content)
  const length =
    whole.length < 0x80
      ? Buffer.of(whole.length)
      : Buffer.of(0x82, Math.floor(whole.length / 256), whole.length % 256)
  return Buffer.concat([Buffer.of(tag), length, whole])
}

/** A server that answers as the authority does; `answer` may change what it says. */
export async function serveTsa(t: Test, tsa: Tsa, answer = (reply: Buffer): Buffer => reply) {
  const asked: Buffer[] = []
  const server = createServer((req, res) => {
    void buffer(req).then((query) => {
      asked.push(query)
      res.writeHead(200, { 'content-type': 'application/timestamp-reply' }).end(answer(tsa.reply(query)))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked }
}

/** The operator's file that has a gateway seal ten times a second, for these anchors. */
export const anchored = (...anchors: readonly object[]) => ({
  '45-proofs.yaml': `plugin: proofs\nseal_interval_ms: 100\nanchors: ${JSON.stringify(anchors)}\n`,
})

/** The time stamps that a gateway has kept: of how many rows, and as base64. */
export async function storedStamps({ settings }: TestGateway) {
  const database = await openDatabase(settings.databaseUrl)
  try {
    return await database.kysely
      .selectFrom('audit_cosignatures')
      .select(['size', 'proof'])
      .where('anchor', 'like', 'timestamp:%')
      .execute()
  } finally {
    await database.close()
  }
}

/** A stamp with one byte changed: that far into the first place where these bytes of it stand. */
export function flipped(
  stamp: Buffer,
  within: (read: ReturnType<typeof readStamp>) => Uint8Array,
  into = 20,
): Buffer {
  const bytes = Buffer.from(stamp)
  const at = bytes.indexOf(within(readStamp(stamp))) + into
  bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at)
  return bytes
}

/** A stamp of the second before or behind. */
export const misdated = (stamp: Buffer): Buffer =>
  // Tag and length of a GeneralizedTime of whole seconds, and its last digit.
  flipped(stamp, ({ content }) => content.subarray(Buffer.from(content).indexOf('\x18\x0f20', 'latin1')), 15)
