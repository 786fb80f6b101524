import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import type { Test } from 'tap'
import { issueServerCertificate } from '../../../certs/authority/issue.ts'
import { madeAuthority } from '../certs/made.ts'

/** A TLS server's certificate for 127.0.0.1 and its key, which this process trusts until the test ends. PEM. */
export async function trusted(t: Test): Promise<{ readonly cert: string; readonly key: string }> {
  const at = Date.now()
  const { authority, rootPem } = await madeAuthority(at)
  const options = { at, days: 1 }
  const { chainPem, privateKeyPem } = await issueServerCertificate(authority, ['127.0.0.1'], options)
  const before = getCACertificates('default')
  setDefaultCACertificates([...before, rootPem])
  t.teardown(() => setDefaultCACertificates(before))
  return { cert: chainPem, key: privateKeyPem }
}
