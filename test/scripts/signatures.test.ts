import t from 'tap'
import { signatureVerdict } from '../../scripts/release.ts'

t.test('packages with a wrong signature, and without one, are named', async (t) => {
  const text = JSON.stringify({
    invalid: [{ name: 'a', version: '1.0.0', code: 'EINTEGRITYSIGNATURE' }],
    missing: [{ name: '@b/c', version: '2.0.0' }],
  })
  t.strictSame(signatureVerdict(text), { checked: true, invalid: ['a@1.0.0'], missing: ['@b/c@2.0.0'] })
  const none = JSON.stringify({ invalid: [], missing: [] })
  t.strictSame(signatureVerdict(none), { checked: true, invalid: [], missing: [] })
})

t.test('a registry that could not be asked is said to be one', async (t) => {
  const text = JSON.stringify({ error: { code: 'ENOTFOUND', summary: 'no such host' } })
  t.strictSame(signatureVerdict(text), { checked: false, why: 'no such host' })
  for (const nothing of ['', 'npm ERR!', '[]', '{}', '{"invalid":[]}']) {
    t.strictSame(signatureVerdict(nothing), { checked: false, why: 'npm gave no verdict' }, nothing)
  }
})
