import type { WalkProgress } from '../../../db/ledger/rehearsal/rehearse.ts'

/**
 * Lines `{"progress": {"rows", "of"}}`, and last the result. Resolves at the first, so a work that cannot
 * begin is refused as any other.
 */
export async function ndjsonWithProgress<Value>(
  work: (onProgress: (progress: WalkProgress) => void) => Promise<Value>,
): Promise<AsyncIterable<Uint8Array>> {
  let told: WalkProgress | null = null
  let wake = Promise.withResolvers<void>()
  const done = work((progress) => {
    told = progress
    wake.resolve()
  })
  done.catch(() => undefined)
  const ended = done.then(() => 'ended' as const)
  await Promise.race([wake.promise, ended])
  async function* lines(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const progress = told
      told = null
      wake = Promise.withResolvers<void>()
      if (progress !== null) yield lineOf({ progress })
      if ((await Promise.race([wake.promise, ended])) === 'ended') break
    }
    yield lineOf(await done)
  }
  return lines()
}

const encoder = new TextEncoder()

const lineOf = (value: unknown): Uint8Array => encoder.encode(`${JSON.stringify(value)}\n`)
