import { Agent, request } from 'undici'

/** A page as an operator's browser gets it. */
export interface Shown {
  readonly text: string
  /** From asking to the last byte. */
  readonly ms: number
}

/** An operator's browser without a window, signed in. */
export interface Browser {
  /** Gets a page. Rejects where it is not there. */
  readonly get: (path: string) => Promise<Shown>
  /** Sends a form as the page that it is on does. Rejects where what comes is no page. */
  readonly send: (path: string, fields: Readonly<Record<string, string>>) => Promise<Shown>
  readonly close: () => Promise<void>
}

/** Signs in by the operator secret. */
export async function openBrowser(port: number, ca: string, secret: string): Promise<Browser> {
  const origin = `https://localhost:${port}`
  const agent = new Agent({ connect: { ca }, connections: 1 })
  let cookie = ''
  const ask = async (path: string, body?: string): Promise<Shown & { readonly status: number }> => {
    const from = performance.now()
    const headers = { cookie, origin, 'sec-fetch-site': 'same-origin' }
    const answer = await request(origin + path, {
      dispatcher: agent,
      ...(body === undefined
        ? { headers }
        : {
            method: 'POST',
            headers: { ...headers, 'content-type': 'application/x-www-form-urlencoded' },
            body,
          }),
    })
    const text = await answer.body.text()
    const ms = performance.now() - from
    for (const line of [answer.headers['set-cookie'] ?? []].flat()) cookie = line.split(';')[0] ?? ''
    return { status: answer.statusCode, text, ms }
  }
  const shown = async (path: string, body?: string): Promise<Shown> => {
    const found = await ask(path, body)
    if (found.status === 200) return found
    throw new Error(`${path} answered ${found.status}: ${found.text.slice(0, 500)}`)
  }
  const { status, text } = await ask('/proxy/sign-in', new URLSearchParams({ secret }).toString())
  if (status !== 303) throw new Error(`the operator secret opens no page: ${status} ${text.slice(0, 500)}`)
  return {
    get: (path) => shown(path),
    send: (path, fields) => shown(path, new URLSearchParams(fields).toString()),
    close: () => agent.close(),
  }
}
