import { LRUCache } from 'lru-cache'

const one = (): number => 1

/** Makes a cache that forgets the entry that was used longest ago. The library would reserve the memory of `max` entries. */
export const boundedCache = <Value extends {}>(max: number): LRUCache<string, Value> =>
  new LRUCache({ maxSize: max, sizeCalculation: one })
