import type { Database } from '../../../db/database.ts'
import { eventually } from '../settled.ts'

/** Waits until this process is the one that does a task: on PostgreSQL that takes a moment. */
export const leading = ({ leads }: Pick<Database, 'leads'>, task: string): Promise<boolean> =>
  eventually(
    () => leads(task),
    (is) => is,
  )
