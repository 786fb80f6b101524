/** The size of a JSON value. */
export interface Extent {
  /** Levels of objects and arrays. 0: neither. */
  readonly depth: number
  /** Every value in it, itself included. */
  readonly values: number
  /** True where an object in it has a member `__proto__`: to some readers that is not a member. */
  readonly proto: boolean
}

/** Measures a value without recursion. Stops beyond `most` values, with the size so far. */
export function extentOf(value: unknown, most: number): Extent {
  const waiting: { readonly value: unknown; readonly depth: number }[] = [{ value, depth: 0 }]
  let deepest = 0
  let values = 0
  let proto = false
  for (let next = waiting.pop(); next !== undefined && values <= most; next = waiting.pop()) {
    values += 1
    if (typeof next.value !== 'object' || next.value === null) continue
    const depth = next.depth + 1
    deepest = Math.max(deepest, depth)
    proto ||= Object.hasOwn(next.value, '__proto__')
    for (const inner of Object.values(next.value)) waiting.push({ value: inner, depth })
  }
  return { depth: deepest, values, proto }
}
