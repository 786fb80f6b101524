import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { Change } from '../../admin/operation/changes.ts'

/**
 * Names changes that somebody was shown, so that the press that makes them says which. Hex, 32 characters. The same set
 * has one name, in whichever order it was typed.
 */
export const nameOfShown = (changes: readonly Change[]): string =>
  hash('sha256', canonicalize(changes.map(ordered)) ?? '').slice(0, 32)

const ordered = (change: Change): Change =>
  'capabilities' in change ? { ...change, capabilities: change.capabilities.toSorted() } : change
