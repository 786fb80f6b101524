import { eventLoopTurn } from '../../../plugins/turns.ts'

/** Maps a list, and gives others their turn after each `atOnce` of its members. */
export async function mapInBatches<One, Shown>(
  list: readonly One[],
  atOnce: number,
  show: (one: One) => Shown,
): Promise<Shown[]> {
  const all: Shown[] = []
  for (const one of list) {
    all.push(show(one))
    if (all.length % atOnce === 0) await eventLoopTurn()
  }
  return all
}
