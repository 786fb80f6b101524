import type { KeyObject } from 'node:crypto'
import type { CertificateReason } from '../certificate-error.ts'
import type { ByocaEnrollment } from './byoca.ts'
import type { CaCertificate } from './ca-certificate.ts'
import type { EnrolledCertificate } from './enrollment.ts'
import type { EnrolledSvid, SvidEnrollment } from './svid.ts'

/** The tasks of the thread: their inputs and results. */
export interface CertificateTasks {
  readonly checkByoca: (enrollment: ByocaEnrollment) => Promise<EnrolledCertificate>
  readonly checkSvid: (enrollment: SvidEnrollment) => Promise<EnrolledSvid>
  readonly readCaCertificates: (text: {
    readonly caPem: string
    readonly at: number
  }) => Promise<readonly CaCertificate[]>
  readonly keyOfCsr: (request: { readonly csrPem: string; readonly spiffeId: string }) => Promise<KeyObject>
}

export type CertificateTaskName = keyof CertificateTasks

/** Answered in the order of asking. */
export interface CertificateTaskRequest {
  readonly task: CertificateTaskName
  readonly input: Parameters<CertificateTasks[CertificateTaskName]>[0]
}

export type CertificateTaskReply =
  | { readonly kind: 'done'; readonly value: unknown }
  | { readonly kind: 'refused'; readonly reason: CertificateReason; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string }
