import { Refusal } from '../../../plugins/refusal.ts'

/**
 * The same work, but never more of it at once than `most`: what comes on top is refused with `overloaded`. For work that
 * a caller can ask for faster than it ends.
 */
export function atOnce<Given extends readonly unknown[], Made>(
  most: number,
  work: (...given: Given) => Promise<Made>,
): (...given: Given) => Promise<Made> {
  let underWay = 0
  return async (...given) => {
    if (underWay >= most) throw new Refusal('overloaded')
    underWay += 1
    try {
      return await work(...given)
    } finally {
      underWay -= 1
    }
  }
}
