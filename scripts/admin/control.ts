import { existsSync } from 'node:fs'
import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { controlPath, isRunning } from '../../proxy/http/control-socket.ts'
import type { Settings } from '../../proxy/settings.ts'
import { type Answer, answerOf, type Call } from './call.ts'

/**
 * Does administrative work by the one writer of the data directory: through the control socket of the gateway
 * that runs on it, or, where none runs, by opening the data directory for the while without listening on the
 * network.
 */
export async function withControl<T>(settings: Settings, work: (call: Call) => Promise<T>): Promise<T> {
  const call = (): Call => {
    const path = controlPath(settings.dataDir)
    return (method, target, body) => callSocket(path, method, target, body)
  }
  if (await hasGateway(settings)) return work(call())
  // Only now: beside a running gateway nothing of it has to be loaded.
  const { startGateway } = await import('../../proxy/gateway.ts')
  const gateway = await startGateway({ ...settings, logLevel: 'silent' }, { controlOnly: true })
  try {
    return await work(call())
  } finally {
    await gateway.close()
  }
}

const hasGateway = async ({ dataDir }: Settings): Promise<boolean> =>
  existsSync(dataDir) && isRunning(controlPath(dataDir))

function callSocket(socketPath: string, method: string, path: string, body: unknown): Promise<Answer> {
  const payload = body === undefined ? '' : JSON.stringify(body)
  const headers =
    payload === '' ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }
  return new Promise((resolve, reject) => {
    const req = request({ socketPath, method, path, headers }, (res) => {
      text(res)
        .then((all) => resolve(answerOf(res.statusCode ?? 0, res.headers['content-type'], all)))
        .catch(reject)
    })
    req.on('error', reject)
    req.end(payload)
  })
}
