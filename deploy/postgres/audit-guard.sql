-- Run once by a superuser, in the database of the gateways, after roles.sql; before or after migrations. It may be run
-- again.
--
-- roles.sql already keeps the role of the gateways from everything below: it owns nothing. This file also stops the role
-- that owns the ledger, and a superuser who does not mean it: nothing of the ledger is dropped, and none of its triggers
-- is switched off, by whatever statement, DROP SCHEMA public CASCADE and DROP OWNED included. What does so lies in a
-- schema of its own, which goes with no other, and belongs to whoever runs this file: neither role can drop, replace or
-- switch it off.
--
-- What it does not stop: a superuser who means it (ALTER EVENT TRIGGER … DISABLE, event_triggers = off, DROP DATABASE,
-- the server's files), and the owner who puts another body into a guard of the ledger. The first is found by the heads
-- that are noted outside of the database, the second by each gateway when it connects, and both by `sallyport verify`.
--
-- Managed services: event triggers take a superuser, or a service that lets its administrators make them. Where it does
-- not, leave this file out. Then the role of the gateways is stopped as before, by owning nothing; the owner and the
-- administrators are not, and what they do is found as above. Keep the owner's credentials where only
-- `sallyport migrate up` is run.
--
-- No migration of ours drops anything of the ledger: its guards are changed by CREATE OR REPLACE.

create schema if not exists audit_guard;
revoke all on schema audit_guard from public;

create or replace function audit_guard.refuse_drop() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  dropped record;
begin
  for dropped in
    select object_type, object_identity, address_names as names from pg_event_trigger_dropped_objects()
    where not is_temporary and schema_name is not distinct from 'public'
  loop
    if dropped.object_type in ('table', 'table column', 'trigger')
        and dropped.names[2] in ('audit_rows', 'audit_segments', 'audit_streams')
      or dropped.object_type = 'function' and dropped.names[2] like 'audit\_rows\_%'
    then
      raise exception 'the audit ledger is not dropped: % %', dropped.object_type, dropped.object_identity;
    end if;
  end loop;
end $$;

-- Looks at what the statement leaves, however it is spelt.
create or replace function audit_guard.refuse_switching_off() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  odd text;
begin
  select tgname into odd from pg_trigger
    where tgrelid = to_regclass('public.audit_rows') and not tgisinternal and tgenabled not in ('O', 'A');
  odd := coalesce(odd, (select rulename from pg_rewrite where ev_class = to_regclass('public.audit_rows') limit 1));
  if odd is not null then
    raise exception 'the guards of the audit ledger are not switched off: %', odd;
  end if;
end $$;

revoke all on function audit_guard.refuse_drop(), audit_guard.refuse_switching_off() from public;

drop event trigger if exists audit_guard_drop;
create event trigger audit_guard_drop on sql_drop execute function audit_guard.refuse_drop();
drop event trigger if exists audit_guard_switch;
create event trigger audit_guard_switch on ddl_command_end
  when tag in ('ALTER TABLE', 'CREATE RULE') execute function audit_guard.refuse_switching_off();
-- Also in a session that replays a replica's changes.
alter event trigger audit_guard_drop enable always;
alter event trigger audit_guard_switch enable always;
