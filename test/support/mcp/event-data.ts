import type { MemoryReservation } from '../../../plugins/plugin.ts'
import { EventReader, type SizeLimits } from '../../../proxy/mcp/upstream/events.ts'

/** The data of each event of an event stream. */
export async function* eventData(
  chunks: AsyncIterable<Buffer>,
  limits: SizeLimits,
  held: MemoryReservation | null = null,
): AsyncGenerator<Buffer> {
  const events = new EventReader(limits, held)
  for await (const chunk of chunks) {
    await events.reserve(chunk)
    yield* events.read(chunk)
  }
}
