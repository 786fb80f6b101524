import { run } from './database.ts'
import { both, type DatabaseEdit, sql } from './editing.ts'

export const SCHEMA: readonly DatabaseEdit[] = [
  ...['audit_rows_update', 'audit_rows_delete', 'audit_rows_insert'].map(
    (name): DatabaseEdit => ({
      name: `schema: no trigger ${name}`,
      work: (file) => {
        run(file, `drop trigger ${name}`)
        return both(2)
      },
    }),
  ),
  ...[
    'create trigger mine after insert on audit_rows begin select 1; end',
    'create trigger mine before delete on audit_tiles begin select 1; end',
    'create trigger mine after insert on AUDIT_ROWS begin select 1; end',
    'create index mine on Audit_Rows (status)',
    'create table AUDIT_MORE (x)',
    'create trigger mine instead of insert on audit_log begin select 1; end',
    'create index mine on audit_rows (status)',
    'create unique index mine on audit_checkpoints (root)',
    'drop index audit_rows_time',
    'drop index audit_checkpoints_place',
    'create table audit_more (x)',
    'create view audit_view as select 1',
    'alter table audit_rows add column more text',
    'alter table audit_keys add column more text',
    'drop view audit_log; create view audit_log as select * from audit_rows',
    "drop view audit_log; create view audit_log as with recursive n(seq) as (select 1 union all select seq + 1 from n) select 'main' as stream, seq, '' as recorded_at, '' as request_id, '' as principal_id, '' as action, '' as status, '' as row_hash, '' as leaf, '' as principal_type, '' as tool, '' as model, '' as provider, '' as cert_thumbprint, '' as dpop_jkt, '' as detail, '' as config_digest, '' as version, '' as prev_hash from n",
    'drop trigger audit_rows_update; create trigger audit_rows_update before update on audit_rows begin select 1; end',
  ].map(
    (text): DatabaseEdit => ({
      name: `schema: ${text.slice(0, 90)}`,
      work: (file) => {
        run(file, text)
        return both(2)
      },
    }),
  ),
  ...[
    [
      'audit_trees',
      "select 1 as tree, 'x' as origin, 0 as size, 0 as place, '' as begun_at, '' as reason from n",
    ],
    [
      'internal_agents',
      "select x as agent_id, '[]' as capabilities, 1 as is_active, 1 as authority_revision, null as dpop_jkt, null as previous_dpop_jkt, null as previous_dpop_jkt_until, '' as enrollment_method, null as spiffe_id from n",
    ],
    [
      'audit_rows',
      "select x as seq, '' as recorded_at, '' as request_id, '' as principal_id, '' as action, '' as status, '' as row_hash, '' as leaf from n",
    ],
  ].map(
    ([table, select]): DatabaseEdit => ({
      name: `schema: a view without an end in the place of ${table}`,
      work: (file) => {
        run(
          file,
          `pragma legacy_alter_table = on; alter table ${table} rename to moved; create view ${table} as with recursive n(x) as (select 1 union all select x + 1 from n) ${select}`,
        )
        return both(table === 'audit_rows' ? 9 : 2)
      },
    }),
  ),
]

const T = "'2026-01-02T03:04:05.006Z'"
export const BESIDE: readonly DatabaseEdit[] = [
  ...[
    `update internal_agents set capabilities = '["files.use","llm.chat","more"]'`,
    `update internal_agents set capabilities = '[]'`,
    "update internal_agents set capabilities = 'x'",
    'update internal_agents set is_active = 0',
    'update internal_agents set authority_revision = authority_revision + 1',
    "update internal_agents set dpop_jkt = 'other'",
    'update internal_agents set dpop_jkt = null',
    "update internal_agents set agent_id = 'acme::other'",
    'delete from internal_agents',
    `insert into internal_agents (agent_id, name, capabilities, enrollment_method, authority_revision, federated, created_at, updated_at) values ('acme::new', 'new', '["llm.chat"]', 'minted', 1, 0, ${T}, ${T})`,
    `update local_workload_principals set capabilities = '["x"]'`,
    'delete from local_workload_principals',
    "update certificate_pins set thumbprint = 'other' where thumbprint = 'job'",
    "delete from certificate_pins where thumbprint = 'job'",
    `insert into certificate_pins (thumbprint, principal_type, principal_id, not_before, not_after, created_at, is_current, grace_until) values ('more', 'agent', 'acme::bot', ${T}, ${T}, ${T}, 0, '2999-01-01T00:00:00.000Z')`,
    "update certificate_pins set principal_id = 'acme::workload::other' where thumbprint = 'job'",
    'update mcp_resources set required_capability = null',
    "update mcp_resources set required_capability = 'other'",
    'update mcp_resources set enabled = 0',
    "update mcp_resources set name = 'other'",
    'update mcp_resources set revision = revision + 1',
    `update mcp_resources set tool_capabilities = '{"read":"x"}'`,
    'delete from mcp_bindings; delete from mcp_tools; delete from mcp_resources',
    "update mcp_tools set state = 'approved', digest = 'd2', pending_digest = null where name = 'write'",
    "update mcp_tools set digest = 'd9' where name = 'read'",
    "update mcp_tools set state = 'quarantined' where name = 'read'",
    "delete from mcp_tools where name = 'write'",
    "insert into mcp_tools (resource_id, name, definition, digest, state, flags, pinned_at) values ('mcpr_1', 'more', '{}', 'd', 'approved', '[]', '')",
    'delete from mcp_bindings',
    "update mcp_bindings set binding_id = 'mcpb_9'",
    `insert into mcp_bindings (binding_id, principal_type, principal_id, resource_id, created_at) values ('mcpb_2', 'workload', 'acme::workload::job', 'mcpr_1', ${T})`,
    `insert into agent_trusted_cas values ('acme::bot', 'ca1', ${T}, null)`,
    'delete from attached_cas',
    "update attached_cas set kind = 'byoca'",
    `insert into attached_cas (digest, kind, ca_pem, subject, not_after, attached_at) values ('ca2', 'spiffe', 'x', 'x', ${T}, ${T})`,
  ].map((text) => sql(`beside: ${text.slice(0, 110)}`, `pragma foreign_keys = off; ${text}`, both(2))),
]
