import { hash } from 'node:crypto'

// Advisory locks are numbers that all who share a database agree upon. These are the first half of each.

export const STREAM_CLASS = 0x53_41_4c_31
const AUTHORITY_CLASS = 0x53_41_4c_32
const ALONE_CLASS = 0x53_41_4c_33

/** The second half of a stream's lock. Two streams of one number only wait for each other. */
export const streamKey = (stream: string): number =>
  Buffer.from(hash('sha256', stream, 'hex'), 'hex').readInt32BE()

const GRANTED = `from pg_locks where locktype = 'advisory' and granted and objsubid = 2
    and database = (select oid from pg_database where datname = current_database())`

/** The session that holds a lock, by its two halves. */
export const LOCK_HOLDERS = `${GRANTED}
    and classid = ($1::bigint & 4294967295)::oid and objid = ($2::bigint & 4294967295)::oid`

/** The locks of streams that are held, by their second halves: a column of a statement. */
export const HELD_STREAMS = `array(select (case when objid::bigint < 2147483648 then objid::bigint else objid::bigint - 4294967296 end)::int
    ${GRANTED} and classid = ${STREAM_CLASS})`

/** Ends the session that holds a lock. Any role may end sessions of its own. */
export const TERMINATE_LOCK_HOLDER = `select pg_terminate_backend(pid) ${LOCK_HOLDERS} and pid <> pg_backend_pid()`

/**
 * Begins a transaction of decisions. No change of authority is committed while it runs (docs/threats.md#b1).
 */
export const BEGIN_DECISIONS = `begin; select pg_advisory_xact_lock_shared(${AUTHORITY_CLASS}, 0)`

export const BEGIN_CHANGES = `begin; select pg_advisory_xact_lock(${AUTHORITY_CLASS}, 0)`

/**
 * Ends sessions of this role that have held the lock of authority, alone or shared, for longer than $1 ms.
 */
export const TERMINATE_OVERDUE_HOLDERS = `select pg_terminate_backend(pid) from pg_stat_activity
  where coalesce(xact_start, state_change) < clock_timestamp() - $1 * interval '1 ms' and pid <> pg_backend_pid()
    and pid in (select pid ${GRANTED} and classid = ${AUTHORITY_CLASS} and objid = 0)`

/** The transactions that hold the lock of authority now, each by a unique name. */
export const AUTHORITY_HOLDERS = `select pid || ' ' || virtualtransaction as holder ${GRANTED} and classid = ${AUTHORITY_CLASS} and objid = 0`

export const TAKE_EXCLUSIVE_LOCK = `select pg_advisory_lock(${ALONE_CLASS}, 0)`
