import type SQLite from 'better-sqlite3'
import type { MeterKey, MeterState } from '../../ledger/meters/meter-book.ts'

/** The meters of limits as they are stored. Both are part of the batch's transaction. */
interface MeterTable {
  readonly read: (key: MeterKey) => MeterState | undefined
  readonly write: (key: MeterKey, state: MeterState) => void
}

export function meterTable(db: SQLite.Database): MeterTable {
  const read = db.prepare<[string, string, string], MeterState>(READ)
  const write = db.prepare<[string, string, string, number, number, number, number]>(WRITE)
  return {
    read: ({ limit, who, span }) => read.get(limit, who, span),
    write: ({ limit, who, span }, { n, reserved, spent, tat }) =>
      void write.run(limit, who, span, n, reserved, spent, tat),
  }
}

const READ = 'select n, reserved, spent, tat from limit_meters where limit_id = ? and who = ? and span = ?'

const WRITE = `insert into limit_meters (limit_id, who, span, n, reserved, spent, tat) values (?, ?, ?, ?, ?, ?, ?)
on conflict do update set n = excluded.n, reserved = excluded.reserved, spent = excluded.spent, tat = excluded.tat`
