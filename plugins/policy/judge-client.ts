import { Agent, request } from 'undici'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { collectBytes } from '../collect.ts'
import { MIN_TRACED_CHARACTERS, quotesSecret, secretTraces } from '../secrets/traces.ts'

interface JudgeClientOptions<Answer> {
  readonly url: string
  readonly token: string | undefined
  readonly deadlineMs: number
  /** Names the service in errors. */
  readonly who: string
  readonly maxAnswerBytes: number
  /** Questions under way at once. */
  readonly maxQuestions: number
  /** Reads the body of a 200. Throws if it is no sound answer. */
  readonly read: (bytes: Buffer) => Answer
  /** Makes the error of a question that has no sound answer. */
  readonly failure: (cause: unknown) => Error
}

/** Connections to one service. */
const CONNECTIONS = 64
/** Idle connections end by themselves after so long, which is all that closing has to do. ms. */
const IDLE_MS = 10_000

/**
 * Makes the function that posts a question, which it has written as JSON once it may be asked, to a service that judges calls. Anything but a whole 200 in time
 * rejects, and so does an answer that quotes the token: its words go on to callers. Redirects are not followed, TLS is
 * always verified. Does NOT go through a proxy of the environment.
 */
export function judgeClient<Answer>(
  options: JudgeClientOptions<Answer>,
): (write: () => string) => Promise<Answer> {
  const { url, token, deadlineMs, who, maxAnswerBytes, maxQuestions, read, failure } = options
  const dispatcher = new Agent({
    connections: CONNECTIONS,
    allowH2: false,
    keepAliveTimeout: IDLE_MS,
    keepAliveMaxTimeout: IDLE_MS,
    maxResponseSize: maxAnswerBytes,
    connect: { rejectUnauthorized: true, timeout: deadlineMs, lookup: new HostNameCache().lookup },
  })
  const headers = {
    'content-type': 'application/json',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  }
  const traces = secretTraces(token !== undefined && token.length >= MIN_TRACED_CHARACTERS ? [token] : [])
  let underWay = 0

  async function post(body: string): Promise<Buffer> {
    const signal = AbortSignal.timeout(deadlineMs)
    const answer = await request(url, { method: 'POST', dispatcher, headers, body, signal })
    if (answer.statusCode !== 200) {
      // Unread: its end, or its breaking off, says nothing more.
      answer.body.on('error', () => {}).destroy()
      throw new Error(`${who} answered ${answer.statusCode}`)
    }
    const bytes = await collectBytes(answer.body, maxAnswerBytes)
    if (bytes === null) throw new Error(`the answer of ${who} is too large`)
    if (quotesSecret(traces, bytes)) throw new Error(`the answer of ${who} quotes its token`)
    return bytes
  }

  return async (write) => {
    if (underWay >= maxQuestions) throw new Error(`too many questions wait for ${who}`)
    underWay += 1
    try {
      return read(await post(write()))
    } catch (cause) {
      throw failure(cause)
    } finally {
      underWay -= 1
    }
  }
}
