import type { FieldError } from '../capabilities.ts'

/** The end of a page, in a list that is newest first. */
export interface ListCursor {
  readonly createdAt: string
  readonly id: string
}

export type ParsedCursor =
  | { readonly ok: true; readonly cursor: ListCursor }
  | { readonly ok: false; readonly errors: readonly FieldError[] }

/** Prints the cursor as callers carry it: opaque, URL-safe. */
export function printListCursor({ createdAt, id }: ListCursor): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString('base64url')
}

/**
 * Reads a cursor that a caller has brought back. Not signed: one that was made up only chooses where the page
 * starts, in a list that its caller may read whole.
 */
export function parseListCursor(text: string): ParsedCursor {
  const parts = decoded(text)
  if (!Array.isArray(parts) || parts.length !== 2) return invalid
  const [createdAt, id]: unknown[] = parts
  if (typeof createdAt !== 'string' || typeof id !== 'string') return invalid
  return { ok: true, cursor: { createdAt, id } }
}

const invalid: ParsedCursor = {
  ok: false,
  errors: [{ field: 'cursor', message: 'is not a cursor of this service' }],
}

function decoded(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64url').toString())
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}
