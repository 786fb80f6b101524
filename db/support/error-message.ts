/** Returns what an error says, or the text of whatever else was thrown. Libraries throw bare objects too. */
export const messageOf = (error: unknown): string =>
  String(typeof error === 'object' && error !== null && 'message' in error ? error.message : error)
