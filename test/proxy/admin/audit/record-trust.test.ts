import { cp, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import t from 'tap'
import { PRINCIPAL_TABLES } from '../../../../db/principals/tables.ts'
import { skipWithoutFile } from '../../../support/db/engine.ts'
import { trustDomain } from '../../../support/foreign.ts'
import { CHAT, type Identity, scratch, type TestGateway, testGateway } from '../../../support/gateway.ts'
import { signedInBySecret } from '../../../support/oidc/jar.ts'
import { sallyport } from '../../../support/run.ts'

/** Columns of later versions. */
const ADDED_TO_SERVERS = [
  ...['approval', 'tool_approvals', 'approval_ttl_s', 'approval_wait_s'],
  ...['min_proof', 'tool_min_proof', 'oauth'],
]

const ID = 'spiffe://spire.test/pay'

type Domain = Awaited<ReturnType<typeof trustDomain>>

const attach = async ({ admin }: TestGateway, { caPem }: Domain): Promise<string> =>
  (await admin('POST', '/v1/admin/ca/attach', { ca_pem: caPem, kind: 'spiffe' })).json[0].digest

const chat = async (gateway: TestGateway, domain: Domain): Promise<number> => {
  const { certPem, keyPem } = await domain.svid(ID)
  const who: Identity = { id: 'acme::pay', cert: certPem, key: keyPem }
  return (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status
}

await t.test(
  'H7 at the upgrade a SPIFFE agent keeps the CAs that are attached then, and one row says which',
  { skip: skipWithoutFile },
  async (t) => {
    const [old, other, later] = [await trustDomain(), await trustDomain(), await trustDomain()]
    const before = await testGateway(t, { ownCa: true })
    const digests = [await attach(before, old), await attach(before, other)]
    const enroll = async (agent_name: string, id: string, more: object = {}): Promise<void> => {
      const { certPem, keyPem } = await old.svid(id)
      const body = {
        agent_name,
        capabilities: ['llm.chat'],
        svid_pem: certPem,
        svid_key_pem: keyPem,
        ...more,
      }
      t.equal((await before.admin('POST', '/v1/admin/agents/enroll/spiffe', body)).status, 201)
    }
    await enroll('pay', ID)
    await enroll('own', 'spiffe://spire.test/own', { trust_bundle_pem: old.caPem })
    t.equal(await chat(before, other), 401)
    await before.close(0)

    const data = join(await scratch(t), 'data')
    await mkdir(data, { mode: 0o700 })
    await cp(before.settings.dataDir, data, { recursive: true })
    // What the version before has: everything but the table and what tells that it was recorded.
    const db = new SQLite(join(data, 'sallyport.db'))
    db.exec(`drop table agent_trusted_cas; alter table internal_agents drop column previous_spiffe_bundles;
      alter table internal_agents drop column spiffe_bundle_digests;
      drop index internal_agents_followed; alter table internal_agents drop column followed_bundle;
      drop index certificate_pins_issuer; alter table certificate_pins drop column issuer;
      drop table attention_deferrals; drop index audit_rows_denied; drop table capability_sets;
      drop trigger audit_rows_delete; drop table audit_segments; drop table audit_states;
      drop table provider_states; drop table spend_counts; drop table stops; drop table limits; drop table limit_set; drop table limit_meters;
      drop table approvals; drop table people_grants; drop table people_states; drop table people_identities;
      drop table upstream_accounts; drop table upstream_revocations; drop table upstream_clients; drop table export_cursors;
      ${ADDED_TO_SERVERS.map((column) => `alter table mcp_resources drop column ${column};`).join(' ')}
      create trigger audit_rows_delete before delete on audit_rows
      begin select raise(abort, 'audit_log is append-only'); end;
      ${Object.values(PRINCIPAL_TABLES)
        .map(
          ({ table }) =>
            `alter table ${table} drop column labels; alter table ${table} drop column capability_set;`,
        )
        .join(' ')}
      delete from kysely_migration where name >= '0074';
      delete from settings where key = 'trusted_cas_recorded'`)
    db.close()

    const after = await testGateway(t, { ownCa: true, settings: { MCP_PROXY_DATA_DIR: data } })
    const rows = await after.rows({ action: 'authority.trusted_cas' })
    t.strictSame(Object.fromEntries(rows.map(({ detail }) => [detail.subject, detail.trusted_cas])), {
      'acme::own': [],
      'acme::pay': digests.toSorted(),
    })
    const { cas } = (await after.admin('GET', '/v1/admin/agents/acme::pay/trusted-cas')).json
    t.match(cas, [{ trusted_by: null }, { trusted_by: null }])
    for (const domain of [old, other]) t.equal(await chat(after, domain), 200, 'as before')
    await attach(after, later)
    t.equal(await chat(after, later), 401, 'and nobody who came later')
    await after.close(0)

    const again = await testGateway(t, { ownCa: true, settings: { MCP_PROXY_DATA_DIR: data } })
    t.equal((await again.rows({ action: 'authority.trusted_cas' })).length, 2, 'once')
    await again.close(0)

    const copy = join(await scratch(t), 'data')
    await cp(data, copy, { recursive: true })
    const edited = new SQLite(join(copy, 'sallyport.db'))
    edited.exec(`delete from settings where key = 'trusted_cas_recorded';
      delete from agent_trusted_cas where ca_digest = '${digests[0]}'`)
    edited.close()
    const late = await testGateway(t, {
      ...{ ownCa: true, verify: false },
      settings: { MCP_PROXY_DATA_DIR: copy },
    })
    t.match(late.log, [{ msg: 'somebody has edited the database: nothing is done by what was edited' }])
    t.match(
      (await (await signedInBySecret(late)).ask('GET', '/proxy')).text,
      'the setting trusted_cas_recorded, which was gone',
    )
    t.equal((await late.rows({ action: 'authority.trusted_cas' })).length, 2, 'and nothing is said again')
    await late.close(0)
    const { code, out, err } = await sallyport(['verify', join(copy, 'sallyport.db')])
    t.equal(code, 2, 'a table that is edited is not true because a setting is gone')
    t.match(out + err, /principal acme::pay: the tables have trusted CAs/)
  },
)
