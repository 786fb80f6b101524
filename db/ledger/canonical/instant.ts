const INSTANT = /^\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/

// Most rows are of the day of the row before.
let knownDay = ''

/** True for a time in the form of docs/ledger.md#row, of a day and an hour that exist. */
export function isInstant(text: string): boolean {
  if (!INSTANT.test(text)) return false
  const day = text.slice(0, 10)
  if (day === knownDay) return true
  const at = new Date(text)
  if (Number.isNaN(at.getTime()) || at.toISOString() !== text || day.startsWith('0000')) return false
  knownDay = day
  return true
}
