import type { Client } from 'pg'

/** The settings that a server must have, or rows it acknowledges may be lost with its power. */
const WANTED: Readonly<Record<string, readonly string[]>> = {
  fsync: ['on'],
  full_page_writes: ['on'],
  synchronous_commit: ['on', 'remote_write', 'remote_apply'],
}

/** Says in one sentence why a commit on this server is not a durable one, or not to be had; null if it is. */
export async function durabilityProblem(client: Client): Promise<string | null> {
  const { rows: standby } = await client.query<{ is: boolean }>('select pg_is_in_recovery() as is')
  // A session that stayed on it would be refused until it is made the first, which may be never.
  if (standby[0]?.is !== false)
    return 'the database is a standby, which takes no rows: the URL must lead to the primary'
  for (const [name, wanted] of Object.entries(WANTED)) {
    const { rows } = await client.query<string[]>({ text: `show ${name}`, rowMode: 'array' })
    const value = rows[0]?.[0] ?? ''
    if (!wanted.includes(value))
      return `the database has ${name} = ${value}: what it acknowledges could be lost. Set it to ${wanted[0]}`
  }
  return null
}
