// The tasks of the thread that reads the certificates of others: one of them may take half a second.

import { knownCaCertificates, readCaBundle } from './ca-certificate.ts'
import { keyOfCsr } from './csr.ts'
import { checkByoca } from './enrollment.ts'
import { checkSvid } from './svid.ts'

export type CertificateTasks = ReturnType<typeof openTasks>

/** Returns the tasks. Each is the function of its name, and throws as that does. */
export const openTasks = () => ({
  checkByoca,
  checkSvid,
  readCaBundle: ({ caPem, at }: { readonly caPem: string; readonly at: number }) => readCaBundle(caPem, at),
  knownCaCertificates,
  keyOfCsr: ({ csrPem, spiffeId }: { readonly csrPem: string; readonly spiffeId: string }) =>
    keyOfCsr(csrPem, spiffeId),
})
