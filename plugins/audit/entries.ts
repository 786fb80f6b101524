import type { Entry } from '../../db/audit/entry.ts'
import type { JsonObject } from '../../db/json.ts'
import { serviceEntry } from './anonymous.ts'

/** What an audit row says of a change, before it is known who made it. */
export interface AuditNote {
  readonly action: string
  readonly detail: JsonObject
  /** `<resource>.<tool>`, where it is about one. */
  readonly tool?: string
}

/** The row of a change that the service itself has made. */
export const noteEntry = ({ action, detail, tool }: AuditNote, at: number, configDigest: string): Entry => ({
  ...serviceEntry(action, 'success', detail, at, configDigest),
  tool: tool ?? null,
})
