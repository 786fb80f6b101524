import { readFileSync, writeFileSync } from 'node:fs'
import { headPath } from '../../../../db/sqlite/ledger/head-file.ts'
import { WHOLE_LEAVES } from '../../db/scratch-ledger.ts'
import { replaceRows, run, unguarded } from './database.ts'
import { both, type DatabaseEdit, rewritten, sealedRows, seqOf, sql } from './editing.ts'

const STORED_TEXTS = [
  ...['recorded_at', 'request_id', 'principal_id', 'action', 'status', 'row_hash', 'leaf'],
  ...['principal_type', 'model', 'detail', 'config_digest', 'version', 'prev_hash'],
]

/** The rows at the beginning of the history that have a leaf in place of most columns. */
const OLDER_ROWS = 12

export const ROWS: readonly DatabaseEdit[] = [
  ...STORED_TEXTS.flatMap((column) => [
    sql(
      `rows: another ${column}`,
      (log, choose) =>
        `update audit_rows set ${column} = coalesce(${column}, '') || 'x' where seq = ${seqOf(log, choose)}`,
      both(2),
    ),
    sql(
      `rows: ${column} is a number`,
      (log, choose) => `update audit_rows set ${column} = 7 where seq = ${seqOf(log, choose)}`,
      both(2),
    ),
    sql(
      `rows: ${column} is bytes`,
      (log, choose) => `update audit_rows set ${column} = x'00ff' where seq = ${seqOf(log, choose)}`,
      both(2),
    ),
    sql(
      `rows: ${column} is the same as bytes`,
      ({ rows }, { one }) =>
        `update audit_rows set ${column} = cast(${column} as blob) where seq = ${one(rows.slice(OLDER_ROWS, -1).filter((row) => row[column as 'leaf'] !== null))?.seq}`,
      both(2),
    ),
  ]),
  ...['tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt', 'request_id'].map((column) =>
    sql(
      `rows: bytes in the place of no ${column}`,
      `update audit_rows set ${column} = x'00ff' where seq = (select max(seq) from audit_rows where ${column} is null)`,
      both(2),
    ),
  ),
  sql(
    'rows: a leaf that is no JSON',
    (log, choose) => `update audit_rows set leaf = '{' where seq = ${seqOf(log, choose)}`,
    both(2),
  ),
  sql(
    'rows: a leaf with a NUL',
    (log, choose) => `update audit_rows set leaf = leaf || char(0) || 'x' where seq = ${seqOf(log, choose)}`,
    both(2),
  ),
  sql(
    'rows: a leaf of broken UTF-8',
    (log, choose) => `update audit_rows set leaf = cast(x'7bff7d' as text) where seq = ${seqOf(log, choose)}`,
    both(2),
  ),
  sql('rows: one gone', (log, choose) => `delete from audit_rows where seq = ${seqOf(log, choose)}`, both(2)),
  sql('rows: the first gone', 'delete from audit_rows where seq = 1', both(2)),
  sql(
    'rows: several gone',
    (log, choose) =>
      `delete from audit_rows where seq between ${seqOf(log, choose)} - 1 and ${seqOf(log, choose)} and seq < ${log.rows.length}`,
    both('any'),
  ),
  sql('rows: all gone', 'delete from audit_rows', both(2)),
  sql(
    'rows: renumbered',
    (log, choose) =>
      `update audit_rows set seq = -seq where seq > ${seqOf(log, choose)}; update audit_rows set seq = 1 - seq where seq < 0`,
    both(2),
  ),
  sql(
    'rows: numbered from far away',
    (log) => `update audit_rows set seq = seq + 1000000000000 where seq >= ${log.rows.length - 2}`,
    both(2),
  ),
  sql(
    'rows: numbered beyond 2^53',
    (log) => `update audit_rows set seq = seq + 9007199254740992 where seq >= ${log.rows.length - 2}`,
    both(2),
  ),
  sql(
    'rows: one in front of the first',
    `insert into ${WHOLE_LEAVES} select 0, recorded_at, request_id, principal_id, action, status, row_hash, leaf from audit_log where seq = 1`,
    both(2),
  ),
  sql(
    'rows: one more at the end that is another’s',
    (log, choose) =>
      `insert into ${WHOLE_LEAVES} select (select max(seq) + 1 from audit_rows), recorded_at, request_id, principal_id, action, status, row_hash, leaf from audit_log where seq = ${seqOf(log, choose)}`,
    both(2),
  ),
  sql(
    'rows: two swapped',
    (log, choose) => {
      const at = seqOf(log, choose)
      return `update audit_rows set seq = -1 where seq = ${at}; update audit_rows set seq = ${at} where seq = ${at + 1}; update audit_rows set seq = ${at + 1} where seq = -1`
    },
    both(2),
  ),
  {
    name: 'rows: cut off at the end, behind the last checkpoint',
    work: (file, { rows }, { below }) => {
      unguarded(file, () => run(file, `delete from audit_rows where seq > ${rows.length - 1 - below(3)}`))
      return both(4)
    },
  },
  {
    name: 'rows: cut off at the end, before a checkpoint',
    work: (file, log, { below }) => {
      unguarded(file, () =>
        run(file, `delete from audit_rows where seq > ${20 + below(sealedRows(log) - 21)}`),
      )
      return both(4)
    },
  },
  {
    name: 'rows: cut off at the end, and the head with them',
    work: (file, log, { below }) => {
      replaceRows(file, log.rows.slice(0, 20 + below(sealedRows(log) - 21)))
      return both(4)
    },
  },
  {
    name: 'rows: the unsealed tail cut off, and the head with it',
    work: (file, log) => {
      replaceRows(file, log.rows.slice(0, sealedRows(log)))
      return both(0)
    },
  },
  {
    name: 'rows: written anew from one on',
    work: (file, log, { below }) => {
      replaceRows(
        file,
        rewritten(log.rows, 12 + below(sealedRows(log) - 13), (row) => ({ version: `${row.version}.1` })),
      )
      return both(3)
    },
  },
  {
    name: 'rows: the unsealed tail written anew',
    work: (file, log) => {
      replaceRows(
        file,
        rewritten(log.rows, sealedRows(log), () => ({ version: '9.9.9' })),
      )
      return both(0)
    },
  },
  {
    name: 'rows: an older copy of the database, and the head of the newer one',
    work: (file, log, { below }) => {
      const head = readFileSync(headPath(file))
      const size = 20 + below(sealedRows(log) - 21)
      replaceRows(file, log.rows.slice(0, size))
      run(file, `delete from audit_checkpoints where size > ${size}`)
      writeFileSync(headPath(file), head)
      return { alone: 'any', held: 'any' }
    },
  },
]
