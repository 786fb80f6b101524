import { type IncomingHttpHeaders, request } from 'node:http'
import { text as textOf } from 'node:stream/consumers'
import type { Json } from './gateway.ts'

interface LocalAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  // Parsed where it is JSON. Tests reach into it freely.
  readonly json: Json
}

/** Asks over a control socket, with whatever headers. */
export const overSocket =
  (socketPath: string) =>
  (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<LocalAnswer> =>
    new Promise((resolve, reject) => {
      const req = request({ socketPath, method, path, headers }, (res) => {
        textOf(res).then((text) => {
          const { statusCode: status = 0, headers: told } = res
          const isJson = told['content-type'] === 'application/json'
          resolve({ status, headers: told, text, json: isJson ? JSON.parse(text) : null })
        }, reject)
      })
      req.on('error', reject)
      req.end(body === undefined ? undefined : JSON.stringify(body))
    })
