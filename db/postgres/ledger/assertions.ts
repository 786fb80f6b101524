import type { Client } from 'pg'
import { portionsOf } from '../../pages.ts'
import type { Assertion } from '../../statement.ts'

/** Asked in one question. A batch of calls has few that differ: each principal's is one. */
const AT_ONCE = 64

/** Asks assertions, each that differs once, and returns what tells of each whether it found a row. */
export async function holding(
  client: Client,
  assertions: readonly Assertion[],
): Promise<(assertion: Assertion) => boolean> {
  const byKey = new Map(assertions.map((assertion) => [keyOf(assertion), assertion]))
  const found = new Set<string>()
  for (const portion of portionsOf([...byKey], AT_ONCE)) {
    const { rows } = await client.query<boolean[]>({ ...questionOf(portion), rowMode: 'array' })
    portion.forEach(([key], place) => {
      if (rows[0]?.[place] === true) found.add(key)
    })
  }
  return (assertion) => found.has(keyOf(assertion))
}

const keyOf = ({ sql, parameters }: Assertion): string => JSON.stringify([sql, parameters])

function questionOf(portion: readonly (readonly [string, Assertion])[]) {
  const values: (string | number)[] = []
  const columns = portion.map(([, { sql, parameters }]) => {
    const behind = values.length
    values.push(...parameters)
    return `exists (${sql.replace(/\$(\d+)/g, (_, place: string) => `$${Number(place) + behind}`)})`
  })
  return { text: `select ${columns.join(', ')}`, values }
}
