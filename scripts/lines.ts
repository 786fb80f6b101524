import { isUtf8 } from 'node:buffer'

// No honest row is near this long; without a limit one endless line would take all memory.
const LINE_LIMIT = 1024 * 1024
const LF = 0x0a
const NO_UTF_8 = 0xff

/**
 * Yields lines without their line feeds, null for one that is not UTF-8. One of 1 MiB or more is null, and
 * the last.
 */
export async function* streamLines(stream: AsyncIterable<Buffer>): AsyncGenerator<string | null> {
  for await (const block of lineBlocks(stream))
    yield* split(block.at(-1) === LF ? block.subarray(0, -1) : block)
}

/**
 * Yields blocks of whole lines with their line feeds, each in bytes of its own. A line of 1 MiB or more is a
 * byte that is no UTF-8, and the last.
 */
export async function* lineBlocks(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0)
  for await (const chunk of stream) {
    const block = Buffer.concat([rest, chunk])
    const end = block.lastIndexOf(LF) + 1
    // A chunk is shorter: only the first line of a block can be that long.
    if ((end > 0 ? block.indexOf(LF) : block.length) >= LINE_LIMIT) return yield Buffer.of(NO_UTF_8)
    // Before the block is given away.
    rest = Buffer.from(block.subarray(end))
    if (end > 0) yield block.subarray(0, end)
  }
  if (rest.length > 0) yield rest
}

function* split(block: Buffer): Generator<string | null> {
  if (isUtf8(block)) return yield* block.toString().split('\n')
  for (let from = 0; from <= block.length; ) {
    const lf = block.indexOf(LF, from)
    const line = block.subarray(from, lf < 0 ? block.length : lf)
    yield isUtf8(line) ? line.toString() : null
    if (lf < 0) return
    from = lf + 1
  }
}
