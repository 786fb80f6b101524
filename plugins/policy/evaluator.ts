// The tasks of the thread that runs a compiled policy: one that never ends can be ended only from outside
// (docs/policy.md).
import { loadPolicy } from '@open-policy-agent/opa-wasm'
import { messageOf } from '../../db/support/error-message.ts'
import { MAX_ANSWER_BYTES } from './engine.ts'

type WasmPolicy = Awaited<ReturnType<typeof loadPolicy>>

export interface EvaluatorOptions {
  /** A compiled policy as `opa build -t wasm` makes it. */
  readonly wasm: Uint8Array
  /** JSON text of an object, or null if the policy has no data. */
  readonly data: string | null
  readonly entrypoint: string
  /** The bounds of the policy's memory, in pages of 64 KiB. */
  readonly initialPages: number
  readonly maximumPages: number
}

export interface EvaluatorTasks {
  /** Takes and gives JSON text; null if the policy defines no answer. */
  readonly evaluate: (input: string) => Promise<string | null>
}

/** Throws if the policy cannot be used at all. */
export async function openTasks(options: EvaluatorOptions): Promise<EvaluatorTasks> {
  // Null after a failure: what it left in the policy's memory must not judge the next call.
  let ready: WasmPolicy | null = await instantiate(options)

  async function answer(input: string): Promise<string | null> {
    try {
      ready ??= await instantiate(options)
      return evaluate(ready, input, options.entrypoint)
    } catch (error) {
      ready = null
      throw new Error(`the policy failed: ${messageOf(error)}`)
    }
  }

  return { evaluate: answer }
}

async function instantiate({
  wasm,
  data,
  entrypoint,
  initialPages,
  maximumPages,
}: EvaluatorOptions): Promise<WasmPolicy> {
  const policy = await loadPolicy(wasm, { initial: initialPages, maximum: maximumPages })
  const known = Object.keys(policy.entrypoints)
  if (!known.includes(entrypoint)) {
    throw new Error(`it has no entrypoint ${entrypoint}; it has ${known.join(', ')}`)
  }
  if (data !== null) policy.setData(encode(data))
  return policy
}

function evaluate(policy: WasmPolicy, input: string, entrypoint: string): string | null {
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
