/** Cuts a text, or bytes, into pieces of at most `size`, never inside a character. `size`: 2 or more. */
export function* textPieces(body: string | Buffer, size: number): Generator<string | Buffer, undefined> {
  for (let at = 0, end = 0; at < body.length; at = end) {
    end = Math.min(at + size, body.length)
    if (typeof body === 'string') {
      if (end < body.length && isFirstHalf(body.charCodeAt(end - 1))) end -= 1
      yield body.slice(at, end)
    } else yield body.subarray(at, end)
  }
}

const isFirstHalf = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff
