import type { UnknownRecord } from '../../../db/support/json.ts'
import { TaskIncompleteError, type TaskRequester } from '../../../db/support/thread.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { callThreads } from '../aside/aside.ts'
import type { ReadParams } from '../aside/messages.ts'
import { paramsInvalid } from '../protocol/json-text.ts'

/** The parameters of a call as they were judged and go out, read away from the thread that serves. */
export interface LargeParams extends Omit<ReadParams, 'sha256'> {
  readonly text: Buffer
  /** The digest of the canonical form without any salt, for an operator's rule that asks for it. */
  readonly sha256: () => string
}

interface LargeParamsInput {
  readonly bytes: Buffer
  readonly value: UnknownRecord
  /** The member that is judged. Null: all but `_meta` and `without`. */
  readonly member: 'arguments' | null
  readonly without: readonly string[]
  readonly salt: string
}

/**
 * Reads large parameters on a thread, and makes the canonical form of the judged ones. Refuses with
 * `mcp_params_invalid`, also if that takes too long, and with `overloaded`.
 */
export async function readLargeParams(
  { bytes, value, member, without, salt }: LargeParamsInput,
  asker: TaskRequester,
): Promise<LargeParams> {
  try {
    const read = await callThreads.ask('readParams', { params: bytes, member, without, salt }, asker)
    if (read) return { ...read, sha256: () => read.sha256, text: bytes }
    // An escaped name may have been read as another one (nodejs/node#63785): the text as read goes out.
    const text = JSON.stringify(value)
    const anew = await callThreads.ask('readParams', { params: text, member, without, salt }, asker)
    if (!anew) throw tooMuch()
    return { ...anew, sha256: () => anew.sha256, text: Buffer.from(text) }
  } catch (error) {
    throw error instanceof TaskIncompleteError ? tooMuch() : error
  }
}

const tooMuch = (): Refusal => paramsInvalid('params cannot be read with reasonable effort.')
