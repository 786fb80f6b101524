// The thread that runs a compiled policy: one that never ends can be ended only from outside
// (docs/policy.md).
import { parentPort, workerData } from 'node:worker_threads'
import { loadPolicy } from '@open-policy-agent/opa-wasm'
import { MAX_ANSWER_BYTES } from './engine.ts'
import type { EvaluatorMessage, EvaluatorOptions } from './evaluator-messages.ts'

type Policy = Awaited<ReturnType<typeof loadPolicy>>

const port = parentPort
if (!port) throw new Error('plugins/policy/evaluator.ts runs as a worker thread only')

// Proven by plugins/policy/evaluator-thread.ts, which starts this thread and nothing else.
const { wasm, data, entrypoint, initialPages, maximumPages } = workerData as EvaluatorOptions
const send = (message: EvaluatorMessage): void => port.postMessage(message)

// Null after a failure: its traces in the policy's memory must not judge the next call.
let ready: Policy | null = null

try {
  ready = await instantiate()
  send({ kind: 'ready' })
} catch (error) {
  send({ kind: 'unusable', message: describe(error) })
}

port.on('message', (input: string) => void answer(input))

async function answer(input: string): Promise<void> {
  try {
    ready ??= await instantiate()
    const text = evaluate(ready, input)
    send({ kind: 'answered', answer: text })
  } catch (error) {
    ready = null
    send({ kind: 'failed', message: describe(error) })
  }
}

async function instantiate(): Promise<Policy> {
  const policy = await loadPolicy(wasm, { initial: initialPages, maximum: maximumPages })
  const known = Object.keys(policy.entrypoints)
  if (!known.includes(entrypoint)) {
    throw new Error(`it has no entrypoint ${entrypoint}; it has ${known.join(', ')}`)
  }
  if (data !== null) policy.setData(encode(data))
  return policy
}

function evaluate(policy: Policy, input: string): string | null {
  const results: unknown = policy.evaluate(encode(input), entrypoint)
  if (!Array.isArray(results) || results.length > 1)
    throw new Error('it has answered with more than one result')
  const [only]: readonly unknown[] = results
  if (only === undefined) return null
  if (typeof only !== 'object' || only === null || !('result' in only))
    throw new Error('its answer has no result')
  const text = JSON.stringify(only.result)
  if (text.length > MAX_ANSWER_BYTES) throw new Error(`its answer is larger than ${MAX_ANSWER_BYTES} bytes`)
  return text
}

/** A buffer of its own, which the library takes for JSON text. */
function encode(text: string): ArrayBuffer {
  return new TextEncoder().encode(text).slice().buffer
}

/** The library throws strings and bare objects too. */
function describe(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'message' in error) return String(error.message)
  return String(error)
}
