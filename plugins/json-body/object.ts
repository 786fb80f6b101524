import { isUtf8 } from 'node:buffer'
import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { scanJson } from './scan.ts'

/** Reads the JSON object that the bytes are, strictly; null if they are anything else. */
export function parseJsonObject(bytes: Buffer): UnknownRecord | null {
  try {
    return isUtf8(bytes) ? (parsePlainObject(bytes.toString()) ?? scanObject(bytes)) : null
  } catch {
    // It is not one, for any reason.
    return null
  }
}

/** Reads an object of plain members, or null. A value that is written back the same has one reading. */
function parsePlainObject(text: string): UnknownRecord | null {
  if (!text.startsWith('{') || text.lastIndexOf('{') > 0 || text.includes('[')) return null
  const value: unknown = JSON.parse(text)
  return isObject(value) && JSON.stringify(value) === text ? value : null
}

function scanObject(bytes: Buffer): UnknownRecord | null {
  const { value, escapedNames } = scanJson(bytes, 0)
  // A value that is written back to the same text has no name that can be written plainly.
  if (escapedNames && JSON.stringify(value) !== bytes.toString()) scanJson(bytes)
  return isObject(value) ? value : null
}
