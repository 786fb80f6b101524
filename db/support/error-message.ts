/** Returns what an error says, or the text of whatever else was thrown. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
