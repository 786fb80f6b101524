import type { Agent } from 'undici'
import { egressAgent } from '../egress/agent.ts'
import type { SinkOptionsOf } from './options.ts'
import type { ExportSink } from './sink.ts'

/** The time that a connection, and a page with its answer, may take. ms. */
export const [CONNECT_MS, PAGE_MS] = [10_000, 30_000]
/** The most of an answer that is read. Bytes. */
const MAX_ANSWER_BYTES = 65_536

/**
 * Posts lines to an https URL: 2xx takes them. A server that is slow, redirects, or answers without an end is cut, and
 * named in the error; its answer is not used for anything. Private networks may be reached, metadata services not.
 */
export function httpsSink(
  { url: text, headers, client }: Pick<SinkOptionsOf<'https'>, 'url' | 'headers' | 'client'>,
  pageMs = PAGE_MS,
): ExportSink {
  const tls = client && { tls: client }
  const agent = egressAgent({ allowPrivate: true, connectMs: CONNECT_MS, answerMs: pageMs, ...tls })
  const url = new URL(text)
  return {
    send: async ({ lines }, signal) => {
      const late = AbortSignal.timeout(pageMs)
      const deadline = AbortSignal.any([signal, late])
      try {
        await post(agent, url, headers, `${lines.join('\n')}\n`, deadline)
      } catch (error) {
        if (signal.aborted || !late.aborted) throw error
        throw new Error(`${url.host} has not answered within ${pageMs / 1_000} s`, { cause: error })
      }
    },
    close: () => agent.destroy(),
  }
}

async function post(
  agent: Agent,
  url: URL,
  headers: Readonly<Record<string, string>>,
  body: string,
  signal: AbortSignal,
): Promise<void> {
  const { statusCode: status, body: answer } = await agent.request({
    origin: url.origin,
    path: `${url.pathname}${url.search}`,
    method: 'POST',
    headers: { 'content-type': 'application/x-ndjson', ...lowerCased(headers) },
    body,
    signal,
  })
  if (status < 200 || status > 299) {
    answer.on('error', () => {}).destroy()
    const more = status >= 300 && status < 400 ? ', and redirects are not followed' : ''
    throw new Error(`${url.host} answered ${status}${more}`)
  }
  let bytes = 0
  for await (const chunk of answer) {
    bytes += (chunk as Buffer).length
    if (bytes > MAX_ANSWER_BYTES) throw new Error(`${url.host} answered more than ${MAX_ANSWER_BYTES} bytes`)
  }
}

const lowerCased = (headers: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
