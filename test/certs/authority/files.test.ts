import { X509Certificate } from 'node:crypto'
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createAuthority } from '../../../certs/authority/authority.ts'
import { openAuthority, openServerCertificate } from '../../../certs/authority/files.ts'
import { issueServerCertificate } from '../../../certs/authority/issue.ts'
import { seal } from '../../../certs/authority/key-store.ts'
import { AT, DAY_MS } from '../../support/certs/made.ts'

const FILES = ['intermediate.crt', 'intermediate.key.sealed', 'root.crt', 'root.key.sealed']

/** Options for a CA directory that does not exist yet. */
function optionsIn(parent: string) {
  const directory = join(parent, 'pki')
  return { directory, passphrase: 'pass', organisation: 'acme', trustDomain: 'sallyport.local', at: AT }
}

const modeOf = (...path: string[]) => statSync(join(...path)).mode & 0o777
const contentsOf = (directory: string) => FILES.map((name) => readFileSync(join(directory, name), 'utf8'))

await t.test(
  'threat 24 the first call makes the CA, sealed, 0600 in 0700, and the next one loads the same',
  async (t) => {
    const ca = optionsIn(t.testdir({}))
    const first = await openAuthority(ca)
    t.equal(first.created, true)
    t.same(readdirSync(ca.directory).toSorted(), FILES)
    t.equal(modeOf(ca.directory), 0o700)
    for (const name of FILES) t.equal(modeOf(ca.directory, name), 0o600, name)
    t.notMatch(contentsOf(ca.directory).join(), /PRIVATE KEY/)
    const before = contentsOf(ca.directory)
    const second = await openAuthority({ ...ca, at: AT + DAY_MS })
    t.equal(second.created, false)
    t.equal(second.authority.intermediatePem, first.authority.intermediatePem)
    t.same(contentsOf(ca.directory), before)
  },
)

await t.test('threat 24 a CA with any file missing is refused and left as it is', async (t) => {
  const ca = optionsIn(t.testdir({}))
  await openAuthority(ca)
  for (const name of FILES) {
    const away = join(ca.directory, '..', name)
    renameSync(join(ca.directory, name), away)
    await t.rejects(openAuthority(ca), new RegExp(`incomplete, without ${name}: restore it from a backup`))
    t.equal(readdirSync(ca.directory).length, 3)
    renameSync(away, join(ca.directory, name))
  }
  await t.resolves(openAuthority(ca))
})

await t.test(
  'a crash before the commit leaves nothing that counts: the next call makes the CA',
  async (t) => {
    const ca = optionsIn(t.testdir({}))
    mkdirSync(join(ca.directory, 'authority.0123456789ab.tmp'), { recursive: true, mode: 0o700 })
    writeFileSync(join(ca.directory, 'authority.0123456789ab.tmp', 'root.key.sealed'), 'half')
    t.match(await openAuthority(ca), { created: true })
  },
)

await t.test('a crash after the commit, at each step, is completed to the same CA', async (t) => {
  for (const moved of FILES.keys()) {
    const ca = optionsIn(t.testdir({}))
    const { authority } = await openAuthority(ca)
    const ready = join(ca.directory, 'authority.ready')
    mkdirSync(ready)
    for (const name of FILES.slice(moved)) renameSync(join(ca.directory, name), join(ready, name))
    const again = await openAuthority(ca)
    t.equal(again.created, false)
    t.equal(again.authority.intermediatePem, authority.intermediatePem)
    t.same(readdirSync(ca.directory).toSorted(), FILES)
  }
})

await t.test('threat 24 a committed set never replaces a CA that is there', async (t) => {
  const ca = optionsIn(t.testdir({}))
  await openAuthority(ca)
  const before = contentsOf(ca.directory)
  mkdirSync(join(ca.directory, 'authority.ready'))
  writeFileSync(join(ca.directory, 'authority.ready', 'root.crt'), 'another')
  await t.rejects(openAuthority(ca), /root\.crt exists, and .*authority\.ready.* belongs to another CA/)
  t.same(contentsOf(ca.directory), before)
})

await t.test(
  'threat 24 several first starts at once never end in two CAs, nor in one that cannot be opened',
  async (t) => {
    const ca = optionsIn(t.testdir({}))
    const starts = await Promise.allSettled([openAuthority(ca), openAuthority(ca), openAuthority(ca)])
    const made = starts
      .filter((start) => start.status === 'fulfilled')
      .map(({ value }) => value.authority.intermediatePem)
    const { authority } = await openAuthority(ca)
    for (const pem of made) t.equal(pem, authority.intermediatePem)
  },
)

await t.test(
  'threat 24 a CA of another passphrase, organisation, trust domain or key is refused in one sentence',
  async (t) => {
    const ca = optionsIn(t.testdir({}))
    await openAuthority(ca)
    await t.rejects(openAuthority({ ...ca, passphrase: 'other' }), /the CA in .*pki: the passphrase is wrong/)
    await t.rejects(
      openAuthority({ ...ca, organisation: 'other' }),
      /belongs to the organisation acme, not other/,
    )
    await t.rejects(
      openAuthority({ ...ca, trustDomain: 'other' }),
      /belongs to the trust domain sallyport.local, not other/,
    )
    const other = await createAuthority({ organisation: 'acme', at: AT })
    writeFileSync(join(ca.directory, 'intermediate.key.sealed'), seal(other.intermediateKeyPem, 'pass'))
    await t.rejects(openAuthority(ca), /the CA in .*pki: the private key does not belong to the intermediate/)
    writeFileSync(join(ca.directory, 'intermediate.key.sealed'), 'damaged')
    await t.rejects(openAuthority(ca), /the CA in .*pki: this is not a text sealed/)
  },
)

await t.test(
  'threat 24 a key that others can read and a directory that others can write stop the start',
  async (t) => {
    const ca = optionsIn(t.testdir({}))
    await openAuthority(ca)
    for (const name of ['root.key.sealed', 'intermediate.key.sealed']) {
      chmodSync(join(ca.directory, name), 0o644)
      await t.rejects(openAuthority(ca), new RegExp(`run chmod 600 .*${name}`))
      chmodSync(join(ca.directory, name), 0o600)
    }
    chmodSync(ca.directory, 0o770)
    await t.rejects(openAuthority(ca), /run chmod 700/)
  },
)

async function serverOptions(parent: string) {
  const ca = optionsIn(parent)
  const { authority } = await openAuthority(ca)
  const { directory, passphrase, at } = ca
  return { directory, passphrase, at, authority, hostnames: ['localhost', '127.0.0.1', '::1'] }
}

await t.test('the server certificate is made once, sealed, and loaded afterwards', async (t) => {
  const server = await serverOptions(t.testdir({}))
  const first = await openServerCertificate(server)
  t.equal(first.issued, true)
  t.equal(modeOf(server.directory, 'server.key.sealed'), 0o600)
  t.notMatch(readFileSync(join(server.directory, 'server.key.sealed'), 'utf8'), /PRIVATE KEY/)
  t.ok(first.certPem.endsWith(server.authority.intermediatePem))
  t.equal(first.notAfter, new X509Certificate(first.certPem).validToDate.getTime())
  t.same(await openServerCertificate(server), { ...first, issued: false })
  t.same(await openServerCertificate({ ...server, hostnames: ['::1', 'LOCALHOST', '127.0.0.1'] }), {
    ...first,
    issued: false,
  })
})

await t.test(
  'the server certificate is made anew when a third of its life is left, and not before',
  async (t) => {
    const server = await serverOptions(t.testdir({}))
    const { notAfter } = await openServerCertificate(server)
    const third = (notAfter - (AT - 60_000)) / 3
    t.match(await openServerCertificate({ ...server, at: notAfter - third }), { issued: false })
    t.match(await openServerCertificate({ ...server, at: notAfter - third + 1000 }), { issued: true })
    t.match(
      await openServerCertificate({ ...server, at: AT - DAY_MS }),
      { issued: true },
      'the clock was set back',
    )
  },
)

await t.test(
  'the server certificate is made anew for other names, another CA, a missing or a foreign file',
  async (t) => {
    const server = await serverOptions(t.testdir({}))
    const files = ['server.crt', 'server.key.sealed'].map((name) => join(server.directory, name))
    const issuedAfter = async (change: () => void, more: Partial<typeof server> = {}) => {
      change()
      const { issued } = await openServerCertificate({ ...server, ...more })
      t.equal((await openServerCertificate({ ...server, ...more })).issued, false, 'and then it stays')
      return issued
    }
    await openServerCertificate(server)
    const nothing = () => undefined
    t.equal(await issuedAfter(nothing, { hostnames: ['localhost'] }), true)
    t.equal(await issuedAfter(nothing), true)
    for (const path of files) t.equal(await issuedAfter(() => rmSync(path)), true)
    t.equal(await issuedAfter(() => writeFileSync(files[0] ?? '', 'damaged')), true)
    const pair = await issueServerCertificate(server.authority, server.hostnames, { at: AT, days: 90 })
    // What a crash between the two writes leaves: a new key beside the old certificate.
    t.equal(await issuedAfter(() => writeFileSync(files[1] ?? '', seal(pair.privateKeyPem, 'pass'))), true)
    const { authority } = await openAuthority(optionsIn(join(server.directory, 'other')))
    t.equal(await issuedAfter(nothing, { authority }), true)
    const foreign = await issueServerCertificate(authority, server.hostnames, { at: AT, days: 90 })
    const ours = server.authority.intermediatePem
    await openServerCertificate(server)
    const put = (chain: string, key: string) => () => {
      writeFileSync(files[0] ?? '', chain)
      writeFileSync(files[1] ?? '', seal(key, 'pass'))
    }
    t.equal(await issuedAfter(put(pair.chainPem, pair.privateKeyPem)), false, 'a good pair is taken')
    t.equal(await issuedAfter(put(foreign.certPem + ours, foreign.privateKeyPem)), true, 'a foreign leaf')
    t.equal(await issuedAfter(put(pair.certPem, pair.privateKeyPem)), true, 'a leaf without its chain')
  },
)

await t.test(
  'a server key that others can read stops the start; of another passphrase it is made again',
  async (t) => {
    const server = await serverOptions(t.testdir({}))
    await openServerCertificate(server)
    const rotated = { ...server, passphrase: 'other' }
    t.equal((await openServerCertificate(rotated)).issued, true, 'the CA has opened with it')
    t.equal((await openServerCertificate(rotated)).issued, false)
    await openServerCertificate(server)
    chmodSync(join(server.directory, 'server.key.sealed'), 0o640)
    await t.rejects(openServerCertificate(server), /run chmod 600 .*server\.key\.sealed/)
  },
)
