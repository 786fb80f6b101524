/** RFC 3339, UTC, ms: how every timestamp is stored. Texts of this form sort as their instants do (years 0 to 9999). */
export function timestamp(at: number): string {
  return new Date(at).toISOString()
}
