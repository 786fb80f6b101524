import type { Refusal } from '../../plugins/refusal.ts'

/**
 * What `t.throws` and `t.rejects` match a refusal with: its reason, and more of its fields where they matter.
 */
export function refused(reason: Refusal['reason'], more: Partial<Refusal> = {}): { name: 'Error' } {
  const wanted = { name: 'Error' as const, reason, ...more }
  return { ...wanted, name: 'Error' }
}
