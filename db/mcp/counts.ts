import type { Database } from '../database.ts'

/** Tools whose definition waits for approval, those of disabled resources too. */
export async function countQuarantinedTools({ kysely }: Database): Promise<number> {
  const { total } = await kysely
    .selectFrom('mcp_tools')
    .select((select) => select.fn.countAll<number>().as('total'))
    .where('state', '=', 'quarantined')
    .executeTakeFirstOrThrow()
  return total
}

/** Enabled resources whose last read went wrong. One that is disabled is not read, so it would stay so for ever. */
export async function countUnreadableResources({ kysely }: Database): Promise<number> {
  const { total } = await kysely
    .selectFrom('mcp_resources')
    .select((select) => select.fn.countAll<number>().as('total'))
    .where('enabled', '=', 1)
    .where('last_error', 'is not', null)
    .executeTakeFirstOrThrow()
  return total
}
