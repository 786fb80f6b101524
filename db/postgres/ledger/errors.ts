import { DatabaseError } from 'pg'

/**
 * Returns why a unit's own statement was refused; null where the error is the database's, or the connection's, and
 * so the whole batch's. By the classes of PostgreSQL's appendix A.
 */
export function postgresStatementRefusal(error: unknown): 'conflict' | 'duplicate' | 'fault' | null {
  if (!(error instanceof DatabaseError)) return null
  const { code = '' } = error
  if (code === UNIQUE_VIOLATION) return 'duplicate'
  if (code.startsWith('23')) return 'conflict'
  return /^(22|42|0A|P0)/.test(code) ? 'fault' : null
}

const UNIQUE_VIOLATION = '23505'
