import { hash } from 'node:crypto'
import type { Client } from 'pg'
import type { RowAssertion } from '../../support/statement.ts'

/**
 * Asks assertions, each that differs once, and returns what tells of each whether it found a row. Those with one text
 * are one question about many parameters, which the server prepares once for each connection.
 */
export async function evaluateAssertions(
  client: Client,
  assertions: readonly RowAssertion[],
): Promise<(assertion: RowAssertion) => boolean> {
  const bySql = Map.groupBy(
    new Map(assertions.map((assertion) => [keyOf(assertion), assertion])).values(),
    ({ sql }) => sql,
  )
  const answers = await Promise.all([...bySql].map(([sql, alike]) => ask(client, sql, alike)))
  const found = new Set(answers.flat())
  return (assertion) => found.has(keyOf(assertion))
}

const keyOf = ({ sql, parameters }: RowAssertion): string => JSON.stringify([sql, parameters])

/** Returns the keys of those that find a row. */
async function ask(client: Client, sql: string, alike: readonly RowAssertion[]): Promise<readonly string[]> {
  const { rows } = await client.query<[holds: boolean]>({
    ...questionOf(sql, alike[0]?.parameters ?? []),
    values: (alike[0]?.parameters ?? []).map((_, place) => alike.map(({ parameters }) => parameters[place])),
    rowMode: 'array',
  })
  return alike.filter((_, place) => rows[place]?.[0] === true).map(keyOf)
}

/** Each parameter of the text becomes a column of what is asked about. */
function questionOf(sql: string, parameters: RowAssertion['parameters']) {
  if (parameters.length === 0) return { name: nameOf(sql), text: `select exists (${sql})` }
  const lists = parameters.map(
    (one, place) => `$${place + 1}::${typeof one === 'number' ? 'bigint' : 'text'}[]`,
  )
  const columns = parameters.map((_, place) => `p${place + 1}`)
  const about = `unnest(${lists.join(', ')}) with ordinality as asked(${columns.join(', ')}, place)`
  const text = `select exists (${sql.replace(/\$(\d+)/g, 'asked.p$1')}) from ${about} order by asked.place`
  return { name: nameOf(text), text }
}

const nameOf = (text: string): string => `asserted ${hash('sha256', text).slice(0, 16)}`
