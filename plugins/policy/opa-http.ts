import { Agent, request } from 'undici'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { isObject } from '../../db/support/json.ts'
import { collectBytes } from '../collect.ts'
import { scanJson } from '../json-body/scan.ts'
import { MIN_TRACED_CHARACTERS, quotesSecret, secretTraces } from '../secrets/traces.ts'
import { MAX_ANSWER_BYTES, MAX_QUESTIONS, type PolicyEngine } from './engine.ts'

interface OpaHttpOptions {
  readonly url: string
  readonly token: string | undefined
  readonly deadlineMs: number
}

/** Connections to one policy agent. */
const CONNECTIONS = 64
/** Idle connections end by themselves after so long, which is all that closing has to do. ms. */
const IDLE_MS = 10_000

/**
 * Asks an Open Policy Agent by `POST {"input": …}` (Data API, v1). Anything but a 200 with `{"result": …}`,
 * or `{}` if the rule is undefined, rejects: redirects are not followed, TLS is always verified. Does NOT go
 * through a proxy of the environment.
 */
export function opaHttp({ url, token, deadlineMs }: OpaHttpOptions): PolicyEngine {
  const agent = new Agent({
    connections: CONNECTIONS,
    allowH2: false,
    keepAliveTimeout: IDLE_MS,
    keepAliveMaxTimeout: IDLE_MS,
    maxResponseSize: MAX_ANSWER_BYTES,
    connect: { rejectUnauthorized: true, timeout: deadlineMs, lookup: new HostNameCache().lookup },
  })
  const headers = {
    'content-type': 'application/json',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  }
  const traces = secretTraces(token !== undefined && token.length >= MIN_TRACED_CHARACTERS ? [token] : [])
  let underWay = 0

  async function ask(input: string): Promise<unknown> {
    const signal = AbortSignal.timeout(deadlineMs)
    const body = `{"input":${input}}`
    const answer = await request(url, { method: 'POST', dispatcher: agent, headers, body, signal })
    if (answer.statusCode !== 200) {
      // Unread: its end, or its breaking off, says nothing more.
      answer.body.on('error', () => {}).destroy()
      throw new Error(`the policy agent answered ${answer.statusCode}`)
    }
    const bytes = await collectBytes(answer.body, MAX_ANSWER_BYTES)
    if (bytes === null) throw new Error('the answer of the policy agent is too large')
    // Its reason goes on to the caller.
    if (quotesSecret(traces, bytes)) throw new Error('the answer of the policy agent quotes its token')
    return resultOf(bytes)
  }

  return {
    evaluate: async (input) => {
      if (underWay >= MAX_QUESTIONS) throw new Error('too many questions wait for the policy agent')
      underWay += 1
      try {
        return await ask(input)
      } catch (error) {
        throw new Error(`no decision from the policy agent: ${messageOf(error)}`, { cause: error })
      } finally {
        underWay -= 1
      }
    },
    close: () => Promise.resolve(),
  }
}

function resultOf(bytes: Buffer): unknown {
  // Two members named result would be two answers.
  const { value: answer } = scanJson(bytes)
  if (!isObject(answer)) throw new Error('the answer is no JSON object')
  return answer.result
}
