import type { Client } from 'pg'
import { MeterBook, type MeterKey, type MeterState, meterName } from '../../ledger/meters/meter-book.ts'
import type { LedgerWork } from '../../ledger/record/writer.ts'

type StoredMeter = MeterState & { readonly limit_id: string; readonly who: string; readonly span: string }

/**
 * Locks the meters of a batch until its transaction ends and reads them. Waits for a transaction of another replica that
 * has one of them. One order everywhere: no two batches wait for each other for ever.
 */
export async function lockMeters(client: Client, batch: readonly LedgerWork[]): Promise<MeterBook> {
  const keys = new Map<string, MeterKey>()
  for (const { reservations, settlements } of batch)
    for (const key of [...reservations, ...settlements]) keys.set(meterName(key), key)
  if (keys.size === 0) return new MeterBook(() => undefined)
  const sorted = [...keys].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, key]) => key)
  const values = [
    sorted.map(({ limit }) => limit),
    sorted.map(({ who }) => who),
    sorted.map(({ span }) => span),
  ]
  const [, { rows }] = await Promise.all([
    client.query({ name: 'new meters', text: INSERT, values }),
    client.query<StoredMeter>({ name: 'meters', text: LOCK, values }),
  ])
  const stored = new Map(
    rows.map(({ limit_id: limit, who, span, ...state }) => [meterName({ limit, who, span }), state]),
  )
  return new MeterBook((key) => stored.get(meterName(key)))
}

const KEYS = 'unnest($1::text[], $2::text[], $3::text[])'

const INSERT = `insert into limit_meters (limit_id, who, span, n, reserved, spent, tat)
select limit_id, who, span, 0, 0, 0, 0 from ${KEYS} with ordinality as k(limit_id, who, span, place)
where not exists (select from limit_meters m where (m.limit_id, m.who, m.span) = (k.limit_id, k.who, k.span))
order by place on conflict do nothing`

const LOCK = `select m.limit_id, m.who, m.span, m.n, m.reserved, m.spent, m.tat from limit_meters m
join ${KEYS} with ordinality as k(limit_id, who, span, place) on (m.limit_id, m.who, m.span) = (k.limit_id, k.who, k.span)
order by k.place for update of m`

/** The statement that stores the meters that a batch has changed. */
export function storeMetersQuery(changed: ReturnType<MeterBook['changed']>) {
  const columns = [
    changed.map(([{ limit }]) => limit),
    changed.map(([{ who }]) => who),
    changed.map(([{ span }]) => span),
    changed.map(([, { n }]) => n),
    changed.map(([, { reserved }]) => reserved),
    changed.map(([, { spent }]) => spent),
    changed.map(([, { tat }]) => tat),
  ]
  return { name: 'stored meters', text: STORE, values: columns }
}

const STORE = `update limit_meters m set n = k.n, reserved = k.reserved, spent = k.spent, tat = k.tat
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
  as k(limit_id, who, span, n, reserved, spent, tat)
where (m.limit_id, m.who, m.span) = (k.limit_id, k.who, k.span)`
