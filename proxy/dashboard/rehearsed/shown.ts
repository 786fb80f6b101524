import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { RehearsalChange } from '../../admin/operation/changes.ts'

/** Names the changes that somebody was shown, in any order of a set. Hex, 32 characters. */
export const shownChangesDigest = (changes: readonly RehearsalChange[]): string =>
  hash('sha256', canonicalize(changes.map(sortCapabilities)) ?? '').slice(0, 32)

const sortCapabilities = (change: RehearsalChange): RehearsalChange =>
  'capabilities' in change ? { ...change, capabilities: change.capabilities.toSorted() } : change
