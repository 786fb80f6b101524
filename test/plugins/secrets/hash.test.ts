import { hash as argon2 } from '@node-rs/argon2'
import t from 'tap'
import { hashSecret, verifySecret } from '../../../plugins/secrets/hash.ts'

await t.test('§5.1 a secret is stored as a bcrypt hash, and only the secret fits it', async (t) => {
  const stored = await hashSecret('a-long-enough-secret')
  t.match(stored, /^\$2b\$12\$/)
  t.ok(await verifySecret('a-long-enough-secret', stored))
  t.notOk(await verifySecret('a-long-enough-secreT', stored))
  t.ok(await verifySecret('a-long-enough-secret', stored.replace('$2b$', '$2y$')), 'as htpasswd writes it')
})

await t.test('an argon2id hash is accepted too', async (t) => {
  const stored = await argon2('a-long-enough-secret')
  t.match(stored, /^\$argon2id\$/)
  t.ok(await verifySecret('a-long-enough-secret', stored))
  t.notOk(await verifySecret('another', stored))
})

await t.test('T15 nothing past the 72nd byte is cut off in silence', async (t) => {
  t.throws(() => hashSecret('x'.repeat(73)), RangeError)
  t.throws(() => hashSecret('é'.repeat(37)), RangeError, 'bytes, not characters')
  const stored = await hashSecret('x'.repeat(72))
  t.notOk(await verifySecret('x'.repeat(73), stored))
})

await t.test('a stored value of any other shape fits nothing', async (t) => {
  for (const stored of [
    '',
    'a-long-enough-secret',
    '$2b$',
    '$2b$12$short',
    '$argon2id$',
    '$1$md5$x',
    '$argon2i$v=19$x',
  ]) {
    t.notOk(await verifySecret('a-long-enough-secret', stored), stored)
  }
})
