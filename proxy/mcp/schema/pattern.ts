import { RE2JS, RE2Set } from 're2js'

/** A regular expression that runs in time proportional to the text, whatever both are. */
export interface LinearPattern {
  readonly test: (text: string) => boolean
  /** The cost of each character of a text, at worst, in steps of some 20 ns. */
  readonly weight: number
}

const MAX_LENGTH = 2_048
/** The most instructions of a pattern, estimated from above. */
const MAX_WEIGHT = 5_000
/** A class of Unicode properties is hundreds of ranges, built again wherever it stands. */
const PROPERTY_WEIGHT = 50
/** The memory that one pattern may use between texts. Bytes. A usual one needs some kilobytes. */
export const PATTERN_MEMORY = 32 * 1024

const COUNT = /\{(\d*),?(\d*)\}/g
const GROUP_COUNT = /\)\{(\d*),?(\d*)\}/g
// An escape of RE2 that is something else in ECMAScript.
const FOREIGN_ESCAPE = /\\[^\WbBdDsSwWfnrtvcxu0-9]/

/**
 * Compiles the pattern of a JSON Schema for RE2: an upstream could keep JavaScript's engine busy for ever.
 * Returns null if it cannot run so (a look-around, a back reference, a repeat above 1,000), is too large, or
 * ECMA-262 does not know it. `.` and `\s` differ for U+2028 and for white space beyond ASCII.
 */
export function linearPattern(source: string): LinearPattern | null {
  const weight = weightOf(source)
  if (source.length > MAX_LENGTH || weight > MAX_WEIGHT || !isEcmaScript(source)) return null
  try {
    const set = new RE2Set(RE2Set.UNANCHORED, 0, PATTERN_MEMORY)
    set.add(RE2JS.translateRegExp(source))
    set.compile()
    return { test: (text) => set.match(text).length > 0, weight }
  } catch {
    // RE2 throws for a pattern that it does not take.
    return null
  }
}

/** Estimates from above: a counted repeat is written out, and a group may repeat anything before it. */
function weightOf(source: string): number {
  const counts = [...source.matchAll(COUNT)].map(highestCount)
  const groups = [...source.matchAll(GROUP_COUNT)].map(highestCount)
  const properties = source.match(/\\p/gi)?.length ?? 0
  const once =
    source.length + 2 * counts.reduce((sum, count) => sum + count, 0) + properties * PROPERTY_WEIGHT
  return (
    once *
    Math.min(
      1_000,
      groups.reduce((product, count) => product * Math.max(1, count), 1),
    )
  )
}

const highestCount = ([, least, most]: RegExpExecArray): number => Math.max(Number(least), Number(most))

function isEcmaScript(source: string): boolean {
  return isRegExp(source, 'u') || (isRegExp(source, '') && !FOREIGN_ESCAPE.test(source))
}

function isRegExp(source: string, flags: string): boolean {
  try {
    // Only read, never run.
    return new RegExp(source, flags).source.length > 0
  } catch {
    return false
  }
}
