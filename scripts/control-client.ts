import { existsSync } from 'node:fs'
import { request } from 'node:http'
import { Collector } from '../plugins/collect.ts'
import { controlPath, isRunning } from '../proxy/http/control-socket.ts'
import type { Settings } from '../proxy/settings.ts'

/**
 * An answer over the control socket: `body` is parsed JSON, text where it is not JSON, null where there was
 * none.
 */
export interface ControlAnswer {
  readonly status: number
  readonly body: unknown
}

/** Calls the admin API as the local operator. `path` as on the network, e.g. `/v1/admin/agents`. */
export type Call = (method: string, path: string, body?: unknown) => Promise<ControlAnswer>

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
  const { startGateway } = await import('../proxy/gateway.ts')
  const gateway = await startGateway({ ...settings, logLevel: 'silent' }, { controlOnly: true })
  try {
    return await work(call())
  } finally {
    await gateway.close()
  }
}

const hasGateway = async ({ dataDir }: Settings): Promise<boolean> =>
  existsSync(dataDir) && isRunning(controlPath(dataDir))

/**
 * Returns the answer's body where the status is the expected one; else throws with the service's own
 * sentence.
 */
export function expect(answer: ControlAnswer, status: number): Record<string, unknown> {
  // Every body of the admin API is an object or an array.
  const body = (answer.body ?? {}) as Record<string, unknown>
  if (answer.status === status) return body
  throw new Error(typeof body.message === 'string' ? body.message : `the gateway answered ${answer.status}`)
}

function callSocket(socketPath: string, method: string, path: string, body: unknown): Promise<ControlAnswer> {
  const payload = body === undefined ? '' : JSON.stringify(body)
  const headers =
    payload === '' ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }
  return new Promise((resolve, reject) => {
    const req = request({ socketPath, method, path, headers }, (res) => {
      const chunks = new Collector(Number.POSITIVE_INFINITY)
      res.on('data', (chunk: Buffer) => chunks.add(chunk))
      res.on('error', reject)
      res.on('end', () => {
        const text = chunks.bytes().toString()
        const isJson = res.headers['content-type'] === 'application/json'
        resolve({ status: res.statusCode ?? 0, body: isJson ? JSON.parse(text) : text || null })
      })
    })
    req.on('error', reject)
    req.end(payload)
  })
}
