/**
 * The amount of a streamed body that is kept for a second attempt. Bytes. The gateway accepts no more by
 * default.
 */
export const REPLAY_LIMIT_BYTES = 32 * 1024 * 1024

export interface ReplayableBody {
  /** True while another attempt would send all of it. */
  readonly canReplay: () => boolean
  /** Returns the whole body from its beginning, for one attempt. Only the latest one is read. */
  readonly attempt: () => unknown
  /** Closes the source, and drops the bytes that were kept. */
  readonly close: () => void
}

/**
 * Makes a body replayable. Strings and bytes are sent as they are, and so are forms, which the HTTP client
 * writes out again each time. A stream or an iterable is passed on as it comes and kept too, up to 32 MiB:
 * beyond that the first attempt is the only one.
 */
export function replayableBody(body: unknown): ReplayableBody {
  const chunks = chunksOf(body)
  if (chunks) return bufferedBody(chunks)
  return { canReplay: () => true, attempt: () => body, close: () => {} }
}

function chunksOf(body: unknown): Iterator<unknown> | AsyncIterator<unknown> | null {
  if (typeof body !== 'object' || body === null || ArrayBuffer.isView(body)) return null
  // A form iterates over its fields, which are not its bytes.
  if (Symbol.toStringTag in body && body[Symbol.toStringTag] === 'FormData') return null
  if (Symbol.asyncIterator in body) return (body as AsyncIterable<unknown>)[Symbol.asyncIterator]()
  if (Symbol.iterator in body) return (body as Iterable<unknown>)[Symbol.iterator]()
  return null
}

function bufferedBody(source: Iterator<unknown> | AsyncIterator<unknown>): ReplayableBody {
  let chunks: unknown[] | null = []
  let last: unknown
  let bytes = 0
  let ended = false
  let latest = 0
  // One read at a time: an attempt that was broken off may still be waiting for the chunk that the next one
  // needs.
  let reading: Promise<void> | null = null

  const read = async (): Promise<void> => {
    const { done, value } = await source.next()
    ended = done === true
    if (ended) return
    last = value
    bytes += lengthOf(value)
    if (bytes > REPLAY_LIMIT_BYTES) chunks = null
    chunks?.push(value)
  }
  const readOnce = (): Promise<void> => {
    reading ??= read().finally(() => {
      reading = null
    })
    return reading
  }

  async function* attempt(mine: number): AsyncGenerator<unknown> {
    for (let i = 0; ; i += 1) {
      if (!chunks || i >= chunks.length) await readOnce()
      if (mine !== latest || (ended && i >= (chunks?.length ?? 0))) return
      yield chunks ? chunks[i] : last
    }
  }

  return {
    canReplay: () => chunks !== null,
    attempt: () => {
      latest += 1
      return attempt(latest)
    },
    close: () => {
      latest += 1
      chunks = null
      // It may fail as it is let go, when nobody is left who would care.
      if (!ended) Promise.resolve(source.return?.()).catch(() => undefined)
    },
  }
}

const lengthOf = (chunk: unknown): number =>
  typeof chunk === 'string' ? Buffer.byteLength(chunk) : ArrayBuffer.isView(chunk) ? chunk.byteLength : 0
