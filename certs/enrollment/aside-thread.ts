// The thread that reads certificates of others: one may take half a second.
import { parentPort } from 'node:worker_threads'
import { CertificateError } from '../certificate-error.ts'
import type { CertificateTaskReply, CertificateTaskRequest, CertificateTasks } from './aside-messages.ts'
import { checkByoca } from './byoca.ts'
import { readCaCertificates } from './ca-certificate.ts'
import { keyOfCsr } from './csr.ts'
import { checkSvid } from './svid.ts'

const port = parentPort
if (!port) throw new Error('certs/enrollment/aside-thread.ts runs as a worker thread only')

const TASKS: CertificateTasks = {
  checkByoca,
  checkSvid,
  readCaCertificates: async ({ caPem, at }) => readCaCertificates(caPem, at),
  keyOfCsr: ({ csrPem, spiffeId }) => keyOfCsr(csrPem, spiffeId),
}

// One after the other, so that answers come in the order of their questions.
let previousTask: Promise<void> = Promise.resolve()
port.on('message', (question: CertificateTaskRequest) => {
  previousTask = previousTask.then(async () => port.postMessage(await answer(question)))
})

async function answer({ task, input }: CertificateTaskRequest): Promise<CertificateTaskReply> {
  try {
    // Proven by certs/enrollment/aside.ts, which alone asks: the input is that of the task.
    const work = TASKS[task] as (input: CertificateTaskRequest['input']) => Promise<unknown>
    return { kind: 'done', value: await work(input) }
  } catch (error) {
    if (error instanceof CertificateError) {
      return { kind: 'refused', reason: error.reason, message: error.message }
    }
    return { kind: 'failed', message: error instanceof Error ? error.message : String(error) }
  }
}
