import { isObject, type Members } from '../../db/json.ts'
import { scanJson } from './scan.ts'

/** Reads the JSON object that the bytes are, strictly; null where they are anything else. */
export function parseJsonObject(bytes: Buffer): Members | null {
  try {
    const { value, escapedNames } = scanJson(bytes, 0)
    // What is written back to the same text has no name that can be written plainly.
    if (escapedNames && JSON.stringify(value) !== bytes.toString()) scanJson(bytes)
    return isObject(value) ? value : null
  } catch {
    // Whatever is wrong with it: it is not one.
    return null
  }
}
