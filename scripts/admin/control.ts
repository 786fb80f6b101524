import { existsSync } from 'node:fs'
import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import type { Settings } from '../../proxy/boot/settings.ts'
import { controlPath, isGatewayRunning } from '../../proxy/http/control-socket.ts'
import { type AdminAnswer, type AdminCall, adminAnswer, type CallOptions } from './call.ts'

/**
 * Administers through the control socket of the gateway that runs on the data directory or, if none runs, by
 * opening it without listening on the network.
 */
export async function withControl<T>(settings: Settings, work: (call: AdminCall) => Promise<T>): Promise<T> {
  const call = (): AdminCall => {
    const path = controlPath(settings.dataDir)
    return (method, target, body, options) => callSocket(path, method, target, body, options)
  }
  if (await hasGateway(settings)) return work(call())
  // Only now: with a running gateway nothing of it has to be loaded.
  const { startGateway } = await import('../../proxy/wiring/gateway.ts')
  const gateway = await startGateway({ ...settings, logLevel: 'silent' }, { controlOnly: true })
  try {
    return await work(call())
  } finally {
    await gateway.close()
  }
}

const hasGateway = async ({ dataDir }: Settings): Promise<boolean> =>
  existsSync(dataDir) && isGatewayRunning(controlPath(dataDir))

function callSocket(
  socketPath: string,
  method: string,
  path: string,
  body: unknown,
  { into, ifMatch }: CallOptions = {},
): Promise<AdminAnswer> {
  const payload = body === undefined ? '' : JSON.stringify(body)
  const headers = {
    ...(payload !== '' && {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(payload),
    }),
    ...(ifMatch !== undefined && { 'if-match': ifMatch }),
  }
  return new Promise((resolve, reject) => {
    const req = request({ socketPath, method, path, headers }, (res) => {
      const { statusCode: status = 0, headers: said } = res
      const answer =
        into && status === 200
          ? into(res).then(() => ({ status, body: null }))
          : text(res).then((all) => adminAnswer(status, said, all))
      answer.then(resolve, reject)
    })
    req.on('error', reject)
    req.end(payload)
  })
}
