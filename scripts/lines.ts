// No honest row is near this long; without a limit one endless line would take all memory.
const LINE_LIMIT = 1024 * 1024
const LF = 0x0a
const NO_UTF_8 = 0xff

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
