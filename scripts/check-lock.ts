import { readFileSync } from 'node:fs'
import { isObject } from '../db/support/json.ts'

/**
 * Finds packages without a digest, which npm would install unproven, or with an origin; a sentence for each.
 * Throws an Error if the text is no lock file of npm's third version.
 */
export function lockFaults(text: string): readonly string[] {
  const lock: unknown = JSON.parse(text)
  if (!isObject(lock) || lock.lockfileVersion !== 3 || !isObject(lock.packages)) {
    throw new Error('this is no lock file of version 3')
  }
  return Object.entries(lock.packages).flatMap(([place, entry]) => faultsOf(place, entry))
}

function faultsOf(place: string, entry: unknown): string[] {
  // The project itself.
  if (place === '') return []
  if (!isObject(entry)) return [`${place} is not an object`]
  const faults: string[] = []
  const { integrity, resolved } = entry
  if (typeof integrity !== 'string' || !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity)) {
    faults.push(`${place} has no SHA-512 digest (integrity)`)
  }
  if (resolved !== undefined) faults.push(`${place} names the place that it came from (resolved)`)
  return faults
}

if (import.meta.main) {
  const faults = lockFaults(readFileSync('package-lock.json', 'utf8'))
  for (const fault of faults) process.stderr.write(`package-lock.json: ${fault}\n`)
  if (faults.length > 0) process.exitCode = 1
}
