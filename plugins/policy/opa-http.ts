import { messageOf } from '../../db/support/error-message.ts'
import { isObject } from '../../db/support/json.ts'
import { scanJson } from '../json-body/scan.ts'
import { MAX_ANSWER_BYTES, MAX_QUESTIONS, type PolicyEngine } from './engine.ts'
import { judgeClient } from './judge-client.ts'

interface OpaHttpOptions {
  readonly url: string
  readonly token: string | undefined
  readonly deadlineMs: number
}

/**
 * Asks an Open Policy Agent by `POST {"input": …}` (Data API, v1). Anything but a 200 with `{"result": …}`,
 * or `{}` if the rule is undefined, rejects.
 */
export function opaHttp(options: OpaHttpOptions): PolicyEngine {
  const ask = judgeClient({
    ...options,
    ...{ who: 'the policy agent', maxAnswerBytes: MAX_ANSWER_BYTES, maxQuestions: MAX_QUESTIONS },
    read: resultOf,
    failure: (cause) => new Error(`no decision from the policy agent: ${messageOf(cause)}`, { cause }),
  })
  return { evaluate: (input) => ask(() => `{"input":${input}}`), close: () => Promise.resolve() }
}

function resultOf(bytes: Buffer): unknown {
  // Two members named result would be two answers.
  const { value: answer } = scanJson(bytes)
  if (!isObject(answer)) throw new Error('the answer is no JSON object')
  return answer.result
}
