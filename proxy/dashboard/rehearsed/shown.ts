import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { RehearsalChange } from '../../admin/operation/changes.ts'

/**
 * Names the changes that somebody was shown, for the press that makes them. Hex, 32 characters. The same set
 * has one name, in whichever order it was typed.
 */
export const shownChangesDigest = (changes: readonly RehearsalChange[]): string =>
  hash('sha256', canonicalize(changes.map(sortCapabilities)) ?? '').slice(0, 32)

const sortCapabilities = (change: RehearsalChange): RehearsalChange =>
  'capabilities' in change ? { ...change, capabilities: change.capabilities.toSorted() } : change
