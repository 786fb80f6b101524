-- Run by sallyport_owner after each `sallyport migrate up` that has run a migration.

grant select, insert, update, delete on all tables in schema public to sallyport_gateway;

-- The ledger only grows. What has been migrated is the owner's to say.
revoke insert, update, delete on audit_rows from sallyport_gateway;
-- All columns but `place`: the database says which row was first.
grant insert (stream, seq, recorded_at, request_id, principal_id, action, status, prev_hash, row_hash, leaf,
    principal_type, tool, model, provider, dpop_jkt, detail, version, cert_thumbprint, config_digest, prev_sha256,
    row_sha256)
  on audit_rows to sallyport_gateway;
-- What was signed, and what others have said of it, stays as it is.
revoke update, delete on audit_checkpoints, audit_cosignatures from sallyport_gateway;
-- What is archived goes by these alone, and a segment stays as it was written.
grant execute on function audit_rows_remove(bigint, bigint), audit_rows_remove_checkpoints(integer, bigint)
  to sallyport_gateway;
revoke update, delete on audit_segments from sallyport_gateway;
grant update (confirmed_at, removed_at, forgotten_at) on audit_segments to sallyport_gateway;
revoke insert, update, delete on audit_log, kysely_migration, kysely_migration_lock from sallyport_gateway;
