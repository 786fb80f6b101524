import { createDecipheriv, scryptSync } from 'node:crypto'
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { readPrivateFile, seal, unseal, writePrivateFile } from '../../../certs/authority/key-store.ts'

await t.test('threat 24 a sealed secret opens with its passphrase and with no other', async (t) => {
  const sealed = seal('schlüssel\n', 'correct horse')
  t.equal(unseal(sealed, 'correct horse'), 'schlüssel\n')
  t.throws(() => unseal(sealed, 'correct horse '), /passphrase is wrong/)
  t.throws(() => seal('secret', ''), /passphrase that seals keys is empty/)
  t.throws(() => unseal(sealed, ''), /passphrase that seals keys is empty/)
})

await t.test(
  'threat 24 the sealed form is scrypt and AES-256-GCM as it says, and holds nothing of the secret',
  async (t) => {
    const sealed = seal('the secret', 'pass')
    t.match(sealed, /^sallyport-sealed\.v1\.scrypt-aes256gcm\.32768-8-1\.[\w-]{22}\.[\w-]{16}\.[\w-]+\n$/)
    t.not(seal('the secret', 'pass'), sealed)
    // Opened here by hand, from what the text says alone.
    const [, , , cost = '', salt = '', nonce = '', body = ''] = sealed.trim().split('.')
    const [N = 0, r = 0, p = 0] = cost.split('-').map(Number)
    const key = scryptSync('pass', Buffer.from(salt, 'base64url'), 32, { N, r, p, maxmem: 1 << 26 })
    const bytes = Buffer.from(body, 'base64url')
    const cipher = createDecipheriv('aes-256-gcm', key, Buffer.from(nonce, 'base64url'))
    cipher.setAAD(Buffer.from(sealed.slice(0, sealed.lastIndexOf('.')))).setAuthTag(bytes.subarray(-16))
    t.equal(cipher.update(bytes.subarray(0, -16), undefined, 'utf8') + cipher.final('utf8'), 'the secret')
  },
)

await t.test('what one passphrase seals in a process takes one key derivation', async (t) => {
  const partsOf = (sealed: string): readonly string[] => sealed.split('.')
  const texts = Array.from({ length: 50 }, (_, index) => seal(`secret ${index}`, 'one passphrase'))
  const [salts, nonces] = [4, 5].map((place) => new Set(texts.map((text) => partsOf(text)[place])))
  t.equal(salts?.size, 1)
  t.equal(nonces?.size, texts.length, 'a key never sees one nonce twice')
  t.not(partsOf(seal('secret', 'another passphrase'))[4], partsOf(texts[0] ?? '')[4])

  const [, , , , ownSalt = ''] = partsOf(seal('secret', 'one passphrase'))
  const altered = seal('secret', 'one passphrase').replace(ownSalt, 'A'.repeat(22))
  t.throws(() => unseal(altered, 'one passphrase'), /was changed/)
  t.not(partsOf(seal('secret', 'one passphrase'))[4], 'A'.repeat(22), 'an altered text chooses no salt')

  const derivation = cpuOf(() => scryptSync('pass', 'salt', 32, { N: 32_768, r: 8, p: 1, maxmem: 1 << 26 }))
  unseal(texts[0] ?? '', 'one passphrase')
  const opening = cpuOf(() => texts.map((text) => unseal(text, 'one passphrase')))
  t.ok(opening < derivation * 10, `50 texts took ${opening} µs, a derivation ${derivation}`)
})

/** Processor time of this process. µs. */
function cpuOf(work: () => unknown): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return user + system
}

await t.test('threat 24 an altered sealed text is refused, each part of it', async (t) => {
  const sealed = seal('the secret', 'pass')
  const parts = sealed.trim().split('.')
  for (const index of parts.keys()) {
    const altered = parts.with(index, flipped(parts[index] ?? '')).join('.')
    t.throws(() => unseal(altered, 'pass'), /not a text sealed|was changed/, `part ${index}`)
  }
  for (const text of [
    '',
    'hello',
    parts.slice(1).join('.'),
    `${sealed.trim()}.x`,
    parts.with(6, 'AAAA').join('.'),
  ]) {
    t.throws(() => unseal(text, 'pass'), /not a text sealed/)
  }
})

await t.test(
  'threat 24 a private file has mode 0600, replaces the old one whole, and leaves nothing beside it',
  async (t) => {
    const directory = t.testdir({ 'a.key': 'old' })
    const path = join(directory, 'a.key')
    chmodSync(path, 0o644)
    await writePrivateFile(path, 'new')
    t.equal(statSync(path).mode & 0o777, 0o600)
    t.equal(readFileSync(path, 'utf8'), 'new')
    t.same(readdirSync(directory), ['a.key'])
    t.equal(await readPrivateFile(path), 'new')
  },
)

await t.test('threat 24 a write that fails leaves the old state and no temporary file', async (t) => {
  const directory = t.testdir({ taken: { inside: '' } })
  await t.rejects(writePrivateFile(join(directory, 'taken'), 'new'), { code: /EISDIR|ENOTEMPTY|EEXIST/ })
  t.same(readdirSync(directory), ['taken'])
  await t.rejects(writePrivateFile(join(directory, 'missing', 'a.key'), 'new'), { code: 'ENOENT' })
})

await t.test(
  'threat 24 a file that others may read or write is refused, with the command that mends it',
  async (t) => {
    const path = join(t.testdir({}), 'a.key')
    writeFileSync(path, 'secret')
    for (const mode of [0o640, 0o620, 0o604, 0o602, 0o644, 0o666]) {
      chmodSync(path, mode)
      await t.rejects(readPrivateFile(path), {
        message: `${path} can be read or written by users other than its owner: run chmod 600 ${path}`,
      })
    }
    for (const mode of [0o600, 0o400, 0o700]) {
      chmodSync(path, mode)
      t.equal(await readPrivateFile(path), 'secret')
    }
    await t.rejects(readPrivateFile(`${path}.missing`), { code: 'ENOENT' })
  },
)

function flipped(text: string): string {
  return (text.startsWith('A') ? 'B' : 'A') + text.slice(1)
}
