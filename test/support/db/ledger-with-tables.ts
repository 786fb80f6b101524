import { rmSync } from 'node:fs'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import { headPath, openHeadFile } from '../../../db/sqlite/ledger/head-file.ts'
import {
  BOT,
  binding,
  chainOf,
  changed,
  decided,
  decidedTool,
  ended,
  JKT,
  loaded,
  note,
  resource,
  started,
  THUMBPRINT,
} from './history.ts'
import { INSERT_ROW, scratchDatabase, withRaw } from './scratch-ledger.ts'

export const CAPABILITIES = ['files.use', 'llm.chat']
const AGENT = { capabilities: CAPABILITIES, dpop_jkts: [[JKT, null]] }

/** An honest history: an agent, a workload, an MCP server with two tools, a CA; a call of each kind. */
export const HISTORY: readonly LedgerEntry[] = [
  started,
  loaded(),
  note('ca.attached', { kind: 'spiffe', digests: ['ca1'] }),
  changed('agent.created', 1, { ...AGENT, capabilities: [] }),
  changed('agent.capabilities_patched', 2, AGENT),
  changed('workload.created', 1, { subject: 'acme::workload::job', thumbprints: [['job', null]] }),
  resource('created', 1, { pinned: [['read', 'd1']], quarantined: [['write', 'd2']] }),
  binding('created'),
  ...[decided(1, { authority: { revision: 2 } }), decidedTool(2, { authority: { revision: 2 } })].flatMap(
    (call) => [{ ...call, dpop_jkt: JKT }, ended(call)],
  ),
]

/** A database with that history, or another one, the tables that it makes, and the head beside it. */
export async function honestDatabase(directory: string, history = HISTORY): Promise<string> {
  const file = await scratchDatabase(directory)
  storeRows(file, chainOf(history))
  withRaw(file, (db) => db.exec(TABLES))
  return file
}

/** Puts rows into an empty ledger as they are, and notes the last one. */
export function storeRows(file: string, rows: readonly StoredRow[]): void {
  const last = rows.at(-1)
  withRaw(file, (db) => {
    const insert = db.prepare<[StoredRow]>(INSERT_ROW)
    for (const row of rows) insert.run(row)
  })
  rmSync(headPath(file), { force: true })
  const heads = openHeadFile(file)
  if (last) heads.note({ seq: last.seq, hash: last.row_hash })
  heads.close()
}

const AT = `'2026-01-02T03:04:05.006Z'`

/** What that history makes, as statements for an SQLite database that has none of it. */
export const TABLES = `
insert into internal_agents (agent_id, name, capabilities, dpop_jkt, enrollment_method, authority_revision, federated, created_at, updated_at)
  values ('${BOT}', 'bot', '${JSON.stringify(CAPABILITIES)}', '${JKT}', 'minted', 2, 0, ${AT}, ${AT});
insert into local_workload_principals (principal_id, name, capabilities, enrollment_method, federated, created_at, updated_at)
  values ('acme::workload::job', 'job', '["llm.chat"]', 'minted', 0, ${AT}, ${AT});
insert into certificate_pins (thumbprint, principal_type, principal_id, not_before, not_after, created_at)
  values ('${THUMBPRINT}', 'agent', '${BOT}', ${AT}, ${AT}, ${AT}), ('job', 'workload', 'acme::workload::job', ${AT}, ${AT}, ${AT});
insert into mcp_resources (resource_id, name, endpoint_url, auth_type, required_capability, allowed_domains, enabled, tool_capabilities, created_at, updated_at)
  values ('mcpr_1', 'files', 'https://files.example/mcp', 'none', 'files.use', '[]', 1, '{}', ${AT}, ${AT});
insert into mcp_tools (resource_id, name, definition, digest, state, pending_definition, pending_digest, flags, pinned_at)
  values ('mcpr_1', 'read', '{}', 'd1', 'approved', null, null, '[]', ${AT}), ('mcpr_1', 'write', '', '', 'quarantined', '{}', 'd2', '[]', '');
insert into mcp_bindings (binding_id, principal_type, principal_id, resource_id, created_at)
  values ('mcpb_1', 'agent', '${BOT}', 'mcpr_1', ${AT});
insert into attached_cas (digest, kind, ca_pem, subject, not_after, attached_at) values ('ca1', 'spiffe', 'x', 'x', ${AT}, ${AT});
`
