import { request } from 'node:http'
import { resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { messageOf } from '../../db/support/error-message.ts'
import { controlPath } from '../../proxy/http/control-socket.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

// Reads no settings and loads no engine: it is started every few seconds.
export const verb = verbOf({
  name: 'sallyport health',
  about: `Asks the gateway that runs on MCP_PROXY_DATA_DIR, over its control socket, whether it can serve calls, and prints what it
answers. It needs no secret, no certificate and no port: for the health checks of containers.`,
  options: {
    live: { type: 'boolean', description: 'ask only whether the process answers' },
    timeout: {
      type: 'string',
      value: 'SECONDS',
      default: '3',
      description: 'how long to wait for the answer',
    },
  },
  notes: 'Exit code: 0 if it is well, else 1.',
  run: async ({ live = false, timeout }) => {
    const seconds = Number(timeout)
    if (!(seconds > 0))
      throw new Error(`--timeout must be a number of seconds, got ${JSON.stringify(timeout)}`)
    const directory = resolve(process.env.MCP_PROXY_DATA_DIR || 'data')
    try {
      const { status, body } = await askHealth(
        controlPath(directory),
        live ? '/health' : '/ready',
        seconds * 1000,
      )
      print(body)
      return status === 200 ? 0 : 1
    } catch (error) {
      throw new Error(`no gateway answers on ${directory}: ${messageOf(error)}`, { cause: error })
    }
  },
})

async function askHealth(
  socketPath: string,
  path: string,
  ms: number,
): Promise<{ status: number; body: string }> {
  const signal = AbortSignal.timeout(ms)
  const { promise, resolve: answered, reject } = Promise.withResolvers<{ status: number; body: string }>()
  request({ socketPath, path, signal }, (res) => {
    text(res).then((body) => answered({ status: res.statusCode ?? 0, body }), reject)
  })
    .on('error', reject)
    .end()
  return promise
}
