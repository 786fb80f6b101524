import type { ColumnType, Generated } from 'kysely'
import type { CallGrade, MinProof } from './ledger/authority/rule.ts'

/** Every table and column. Timestamps are RFC 3339 text, UTC, ms; truths are 0 or 1; JSON is text. */
export interface DatabaseSchema {
  readonly internal_agents: AgentTable
  readonly local_user_principals: UserTable
  readonly local_workload_principals: LocalPrincipalTable
  readonly local_operator_principals: LocalPrincipalTable
  readonly capability_sets: CapabilitySetTable
  readonly certificate_pins: CertificatePinTable
  readonly subject_keys: SubjectKeyTable
  readonly settings: SettingTable
  readonly api_keys: ApiKeyTable
  readonly attached_cas: AttachedCaTable
  readonly agent_trusted_cas: AgentTrustedCaTable
  readonly single_uses: SingleUseTable
  readonly provider_states: ProviderStateTable
  readonly signing_keys: SigningKeyTable
  readonly mcp_resources: McpResourceTable
  readonly mcp_tools: McpToolTable
  readonly mcp_bindings: McpBindingTable
  readonly approvals: ApprovalTable
  readonly operator_sessions: OperatorSessionTable
  readonly operator_identities: OperatorIdentityTable
  readonly proposals: ProposalTable
  readonly rehearsals: RehearsalTable
  readonly audit_log: AuditLogTable
  readonly audit_trees: AuditTreeTable
  readonly audit_tiles: AuditTileTable
  readonly audit_checkpoints: AuditCheckpointTable
  readonly audit_cosignatures: AuditCosignatureTable
  readonly audit_anchors: AuditAnchorTable
  readonly audit_keys: AuditKeyTable
  readonly audit_segments: AuditSegmentTable
  readonly audit_states: AuditStateTable
  readonly row_counts: RowCountTable
  readonly row_counts_place: RowCountPlaceTable
  readonly spend_counts: SpendCountTable
  readonly attention_deferrals: AttentionDeferralTable
  readonly limits: LimitTable
  readonly limit_set: LimitSetTable
  readonly limit_meters: LimitMeterTable
  readonly people_grants: PeopleGrantTable
  readonly stops: StopTable
  readonly export_cursors: ExportCursorTable
  readonly people_states: PeopleStateTable
  readonly people_identities: PeopleIdentityTable
  readonly upstream_accounts: UpstreamAccountTable
  readonly upstream_revocations: UpstreamRevocationTable
  readonly upstream_clients: UpstreamClientTable
}

export type PrincipalType = 'agent' | 'user' | 'workload' | 'operator'

export type EnrollmentMethod = 'minted' | 'byoca' | 'spiffe' | 'csr' | 'dashboard' | 'oidc'

type SqlFlag = 0 | 1

/** Names in the ledger: who made the object, and who changed it last. Null: unknown. */
interface AuthorshipColumns {
  readonly created_by: ColumnType<string | null, string | null | undefined, never>
  readonly changed_by: ColumnType<string | null, string | null | undefined, string | null>
}

interface PrincipalColumns extends AuthorshipColumns {
  readonly name: string
  readonly display_name: string | null
  readonly is_active: ColumnType<SqlFlag, SqlFlag | undefined, SqlFlag>
  readonly enrollment_method: EnrollmentMethod
  readonly spiffe_id: string | null
  /** RFC 7638 thumbprint of the pinned DPoP key. base64url. */
  readonly dpop_jkt: string | null
  /** The key before the last rotation, honoured until the instant alongside it. */
  readonly previous_dpop_jkt: ColumnType<string | null, string | null | undefined, string | null>
  readonly previous_dpop_jkt_until: ColumnType<string | null, string | null | undefined, string | null>
  readonly federated: ColumnType<SqlFlag, SqlFlag | undefined, SqlFlag>
  /** Ahead of `last_pushed_revision` while the federation publisher has something to push. */
  readonly federation_revision: Generated<number>
  readonly last_pushed_revision: Generated<number>
  /** The ETag: counts changes of the object. */
  readonly revision: Generated<number>
  /** Counts changes of capabilities, activity, certificate or proof key: what decisions are judged by. */
  readonly authority_revision: Generated<number>
  readonly created_at: string
  readonly updated_at: string
  readonly last_seen_at: string | null
  /** JSON array of tokens (spec §2.1). */
  readonly capabilities: Generated<string>
  /** The same of the set that is judged alongside it; null if none is. */
  readonly candidate: ColumnType<string | null, string | null | undefined, string | null>
  /** Since when both are what they are. */
  readonly candidate_since: ColumnType<string | null, string | null | undefined, string | null>
  /** JSON object of texts. */
  readonly labels: Generated<string>
  /** The named set that it was given last; null: none, or that was deleted. */
  readonly capability_set: ColumnType<string | null, string | null | undefined, string | null>
}

interface AgentTable extends PrincipalColumns {
  readonly agent_id: string
  /** PEM: the CAs of its own, in addition to the attached ones that vouch for it (`agent_trusted_cas`). */
  readonly spiffe_bundle: ColumnType<string | null, string | null | undefined, string | null>
  /** JSON array, sorted: the digests of its CAs, as rows say them. Another text vouches for nobody. */
  readonly spiffe_bundle_digests: ColumnType<string | null, string | null | undefined, string | null>
  /**
   * JSON array of the bundles before it, newest first: `[[PEM, RFC 3339, digests]]`, with the end of the grace
   * of each.
   */
  readonly previous_spiffe_bundles: ColumnType<string | null, string | null | undefined, string | null>
  /** The followed bundle of the configuration that `spiffe_bundle` is a copy of; null: none. */
  readonly followed_bundle: ColumnType<string | null, string | null | undefined, string | null>
}

interface LocalPrincipalTable extends PrincipalColumns {
  readonly principal_id: string
}

interface UserTable extends LocalPrincipalTable {
  /** The pseudonym that the ledger knows the user by: `usr_…`. Unique. */
  readonly principal_ref: string
}

interface CapabilitySetTable extends AuthorshipColumns {
  readonly name: string
  /** JSON array of tokens. */
  readonly capabilities: string
  readonly revision: Generated<number>
  readonly created_at: ColumnType<string, string, never>
  readonly updated_at: string
}

/** Keys of commitments (docs/ledger.md#commitments), one for each ledger name. */
interface SubjectKeyTable {
  /** `usr_…` of a user, the id of any other. */
  readonly principal_ref: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  /** 32 random bytes, sealed. base64. */
  readonly sealed_key: string
}

/** Ids that providers' answers have stated, one row for each principal to whom. */
interface ProviderStateTable {
  /** The name that the ledger knows the principal by. */
  readonly principal_ref: string
  /** Lower-case hex, 32 digits: made of provider and id by the principal's key. */
  readonly digest: string
  /** ms since the epoch. */
  readonly expires_at: number
}

interface CertificatePinTable {
  /** Lower-case hex SHA-256 of the certificate's DER. */
  readonly thumbprint: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly not_before: string
  readonly not_after: string
  readonly is_current: ColumnType<SqlFlag, SqlFlag | undefined, SqlFlag>
  /** The end of the time that a pin which is no longer current is honoured. Null: it is not. */
  readonly grace_until: string | null
  readonly created_at: string
  /**
   * Lower-case hex SHA-256 of our intermediate that has issued it; empty: another CA has. Null: from before
   * this was kept.
   */
  readonly issuer: ColumnType<string | null, string, string>
}

interface SettingTable {
  readonly key: string
  readonly value: string
  readonly updated_at: string
}

interface ApiKeyTable {
  /** The `<id>` of `sk_<id>_<secret>`, by which a key is looked up. */
  readonly key_id: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  /** bcrypt or argon2id of the whole key. */
  readonly key_hash: string
  readonly created_at: string
}

/** The certificates that a CA is trusted for: the organisation's own (BYOCA), or SVIDs. */
export type CaKind = 'organisation' | 'spiffe'

interface AttachedCaTable {
  /** Lower-case hex SHA-256 of the DER. */
  readonly digest: string
  readonly kind: CaKind
  readonly ca_pem: string
  readonly subject: string
  readonly not_after: string
  readonly attached_at: string
}

interface AgentTrustedCaTable {
  readonly agent_id: string
  readonly ca_digest: string
  readonly trusted_at: string
  /** A name in the ledger. Null: from before it was recorded. */
  readonly trusted_by: string | null
}

/** A thing that may pass once: the primary key makes the second one fail. */
interface SingleUseTable {
  /** The first 16 bytes of a SHA-256. Lower-case hex. */
  readonly digest: string
  /** ms since the epoch, as one number: it is written with each proof, and never shown. */
  readonly expires_at: number
}

interface SigningKeyTable {
  readonly kid: string
  readonly public_jwk: string
  /** PKCS#8, sealed with the passphrase of the data directory. */
  readonly sealed_key: string
  readonly created_at: string
  /** The instant from which it signs nothing any more. Null: it signs. */
  readonly retired_at: string | null
}

/** A person's permission for a client to call in their name (docs/people.md). */
interface PeopleGrantTable {
  readonly id: string
  /** A user's. */
  readonly principal_id: string
  readonly client_host: string
  /** Lower-case hex. */
  readonly client_id_sha256: string
  readonly client_kind: GrantClientKind
  readonly kind: GrantKind
  /** Space-separated capabilities; null: all that the user holds. */
  readonly scope: string | null
  /** The URL that tokens of it are for. */
  readonly resource: string
  readonly bound: CallGrade
  /** RFC 7638 thumbprint, base64url; null if it is bound to no key. */
  readonly jkt: string | null
  /** JSON array (RFC 8176). */
  readonly amr: string
  readonly issued_at: string
  readonly expires_at: string
}

/** A thing between two requests of a sign-in (db/people/states.ts). Instants: ms since the epoch. */
interface PeopleStateTable {
  readonly kind: string
  readonly id_sha256: string
  readonly grant_id: string | null
  readonly uid: string | null
  readonly user_code: string | null
  /** A keyed digest; null: of no share. */
  readonly sender: string | null
  readonly payload: string
  readonly consumed_at: number | null
  readonly expires_at: number
}

/** A principal's account at an MCP server (docs/accounts.md). */
interface UpstreamAccountTable {
  readonly account_id: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly principal_ref: string
  readonly resource_id: string
  readonly issuer: string
  /** Space-separated. */
  readonly scopes: string
  /** Sealed. */
  readonly tokens: string
  /** 1: bound to a key of the account. */
  readonly bound: SqlFlag
  readonly revision: number
  readonly connected_at: string
  readonly expires_at: string | null
  readonly refreshed_at: string | null
  readonly refreshing_until: string | null
}

/** Tokens of an account that has ended, until its issuer has revoked them. */
interface UpstreamRevocationTable {
  readonly account_id: string
  readonly issuer: string
  /** Sealed. */
  readonly tokens: string
  readonly tries: number
  readonly next_at: string
  readonly until: string
}

/** Our registration at an issuer (RFC 7591). */
interface UpstreamClientTable {
  readonly issuer: string
  /** Sealed. */
  readonly client: string
}

/** The user that was made for somebody at the first sign-in. */
interface PeopleIdentityTable {
  /** Keyed, of issuer and subject. */
  readonly digest: string
  readonly principal_id: string
}

/** The form of a client's id: the address of its document, an entry of the configuration, sealed metadata. */
export type GrantClientKind = 'cimd' | 'registered' | 'sealed'

/** The way that a grant was asked for: a code, an ID-JAG, or the code of a device. */
export type GrantKind = 'code' | 'id_jag' | 'device'

/** The kind of credentials that the gateway shows to an MCP server. */
export type McpAuthType = 'none' | 'bearer' | 'api_key' | 'mtls' | 'oauth'

/** Which MCP an upstream speaks: stateless since 2026-07-28, or with `initialize` as before. */
export type McpEra = 'modern' | 'legacy'

/** `quarantined`: new or changed, and not approved. `gone`: no longer listed. */
export type McpToolState = 'approved' | 'quarantined' | 'gone'

interface McpResourceTable extends AuthorshipColumns {
  readonly resource_id: string
  readonly name: string
  readonly description: string | null
  readonly endpoint_url: string
  readonly auth_type: McpAuthType
  /** `env:MCP_SECRET_…` or `file:/path`: the place of the secret, never the secret. */
  readonly auth_secret_ref: string | null
  /** JSON object (OAuthSettings); null: its `auth_type` is another one. */
  readonly oauth: ColumnType<string | null, string | null | undefined, string | null>
  readonly required_capability: string | null
  /** JSON array of host names. */
  readonly allowed_domains: string
  readonly enabled: SqlFlag
  /** JSON object: the name of a tool, and the capability that calling it demands. */
  readonly tool_capabilities: string
  readonly min_proof: ColumnType<MinProof, MinProof | undefined, MinProof>
  /** JSON object: the name of a tool, and the least proof that calling it demands. */
  readonly tool_min_proof: Generated<string>
  readonly approval: 'operator' | 'person' | null
  /** JSON object: the name of a tool, and who must approve its calls; null: nobody. */
  readonly tool_approvals: string
  /** s */
  readonly approval_ttl_s: number
  /** s */
  readonly approval_wait_s: number
  /** The ETag: counts changes of the object, reads of the upstream aside. */
  readonly revision: Generated<number>
  readonly created_at: string
  readonly updated_at: string
  readonly era: McpEra | null
  readonly protocol_version: string | null
  /** JSON object. */
  readonly server_facts: string | null
  /** The instant of the last read that went well. Null: there was none. */
  readonly last_read_at: string | null
  /** The error of the last read, if it failed. */
  readonly last_error: string | null
}

export const APPROVAL_STATUSES = ['open', 'approved', 'declined', 'expired'] as const

export type ApprovalStatus = (typeof APPROVAL_STATUSES)[number]

/** Calls that wait for an approval, or have waited for one. */
interface ApprovalTable {
  readonly approval_id: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly principal_ref: string
  /** Names the call that asked first. */
  readonly request_id: string
  /** The client's own name of itself; null if it gave none. */
  readonly client: string | null
  readonly resource_id: string
  readonly resource_revision: number
  readonly resource_name: string
  readonly tool: string
  readonly pin: string
  readonly approver: 'operator' | 'person'
  readonly call_digest: string
  /** Sealed; null once it is decided. */
  readonly arguments: string | null
  readonly arguments_bytes: number
  readonly status: ApprovalStatus
  readonly created_at: string
  readonly expires_at: string
  readonly decided_by: string | null
  readonly decided_at: string | null
  /** The door by which it was decided. */
  readonly via: string | null
  readonly reason: string | null
}

interface McpToolTable {
  readonly resource_id: string
  readonly name: string
  /** JSON text exactly as pinned. Empty for a tool that was never approved. */
  readonly definition: string
  /** Lower-case hex. Empty for a tool that was never approved. */
  readonly digest: string
  readonly state: McpToolState
  readonly pending_definition: string | null
  readonly pending_digest: string | null
  /** 1: the digest covers the whole definition. 0: it covers six members, as versions before 0.7 made it. */
  readonly digest_is_whole: ColumnType<SqlFlag, SqlFlag | undefined, SqlFlag>
  readonly pending_is_whole: ColumnType<SqlFlag, SqlFlag | undefined, SqlFlag>
  /** JSON array of strings. */
  readonly flags: string
  readonly pinned_at: string
  readonly changed_at: string | null
}

interface McpBindingTable extends AuthorshipColumns {
  readonly binding_id: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly resource_id: string
  readonly created_at: string
}

interface OperatorSessionTable {
  /** Lower-case hex. The cookie's value itself is kept nowhere. */
  readonly id_sha256: string
  /** Null: by the operator secret. */
  readonly principal_id: string | null
  readonly via: 'oidc' | 'secret' | 'certificate'
  /** JSON array: how the identity provider has authenticated the person (RFC 8176). */
  readonly amr: string
  readonly issuer: string | null
  readonly subject: string | null
  /** The `sid` of the identity provider, which a logout names. */
  readonly provider_session: string | null
  /**
   * JSON array of lower-case hex: the configuration's entries, the secret, or the certificate that let it in.
   */
  readonly mapped_by: string
  readonly created_at: string
  readonly used_at: ColumnType<string, string, string>
  /** The end, however much it is used. */
  readonly expires_at: string
}

interface OperatorIdentityTable {
  readonly issuer: string
  readonly subject: string
  readonly principal_id: string
  readonly created_at: string
}

export type ProposalStatus = 'open' | 'confirmed' | 'declined' | 'expired' | 'void'

interface RehearsalTable {
  readonly rehearsal_id: string
  readonly created_at: string
  readonly rehearsed_by: string
  /** JSON array, canonical. */
  readonly changes: string
  /** JSON object: by the id of a principal or a resource. */
  readonly etags: string
  /** JSON: the rehearsal, as it was answered. */
  readonly result: string
}

interface ProposalTable {
  readonly proposal_id: string
  readonly operation: string
  readonly action: string
  /** JSON array: what proposer and confirmer must hold. */
  readonly capabilities: string
  /** JSON: the operation's input, but for its condition. Empty once it is decided. */
  readonly input: ColumnType<string, string, string>
  /** The ETag of the object when it was proposed; null if there is none. */
  readonly etag: string | null
  /** The rehearsal of the change; null if none. */
  readonly rehearsal_id: string | null
  readonly proposed_by: string
  /** The door by which the proposer came. */
  readonly via: string
  readonly status: ColumnType<ProposalStatus, ProposalStatus, ProposalStatus>
  readonly decided_by: ColumnType<string | null, string | null, string | null>
  readonly created_at: string
  readonly expires_at: string
  readonly decided_at: ColumnType<string | null, string | null, string | null>
}

/** One row of the ledger (docs/ledger.md#row). Written by db/ledger alone. */
interface AuditLogTable {
  readonly stream: string
  readonly seq: number
  readonly recorded_at: string
  readonly request_id: string | null
  readonly principal_id: string | null
  readonly principal_type: string | null
  readonly action: string
  readonly status: string
  readonly tool: string | null
  readonly model: string | null
  readonly provider: string | null
  /** Lower-case hex SHA-256 of the DER. */
  readonly cert_thumbprint: string | null
  /** base64url, RFC 7638. */
  readonly dpop_jkt: string | null
  /** JSON object. */
  readonly detail: string
  /** Which plugin configuration judged. */
  readonly config_digest: string
  readonly version: string
  readonly prev_hash: string
  readonly row_hash: string
  /** The canonical bytes that `row_hash` is the digest of. */
  readonly leaf: string
}

/** A tree over the rows of the ledger (docs/ledger.md#tree). The last one grows. */
interface AuditTreeTable {
  readonly tree: number
  readonly origin: string
  readonly size: ColumnType<number, number, number>
  readonly place: ColumnType<number, number, number>
  readonly begun_at: string
  /** Why a tree follows the first. */
  readonly reason: string | null
}

/** A tile of a tree (C2SP tlog-tiles). It only grows. */
interface AuditTileTable {
  readonly tree: number
  readonly level: number
  readonly n: number
  /** 1 to 256 hashes of 32 bytes. */
  readonly hashes: ColumnType<Uint8Array, Uint8Array, Uint8Array>
}

interface AuditStateTable {
  readonly tree: number
  readonly leaf: number
  readonly place: number
  /** Hex. */
  readonly sha256: string
  readonly state: ColumnType<Uint8Array, Uint8Array, never>
  /** RFC 3339. */
  readonly at: string
  readonly stream: string
  readonly seq: number
}

interface AuditSegmentTable {
  /** Leaves of the tree, inclusive. */
  readonly first: number
  readonly last: number
  readonly last_place: number
  /** SHA-256 of the file, and of its state-end.json. Lower-case hex. */
  readonly sha256: string
  readonly state: string
  /** The name in the folder of the archive. */
  readonly file: string
  readonly bytes: number
  /** The earliest and the latest `recorded_at` of its rows. */
  readonly since: string
  readonly until: string
  /** The row `ledger.archived`. */
  readonly stream: string
  readonly seq: number
  /** The principals and the actions of its rows, as JSON. Null: too many to list, or not known. */
  readonly principals: ColumnType<string | null, string | null | undefined, never>
  readonly actions: ColumnType<string | null, string | null | undefined, never>
  readonly confirmed_at: ColumnType<string | null, string | null | undefined, string | null>
  readonly removed_at: ColumnType<string | null, string | null | undefined, string | null>
  readonly forgotten_at: ColumnType<string | null, string | null | undefined, string | null>
}

interface AuditCheckpointTable {
  readonly tree: number
  readonly size: number
  readonly place: number
  /** base64. */
  readonly root: string
  readonly signed_at: string
  /** Lines of a signed note, by the keys of the log. */
  readonly signatures: string
}

interface AuditCosignatureTable {
  readonly tree: number
  readonly size: number
  readonly anchor: string
  /** A line of a cosignature, or the base64 of a TimeStampResp (RFC 3161). */
  readonly proof: string
  readonly at: string
}

interface AuditAnchorTable {
  readonly tree: number
  readonly anchor: string
  /** The size of its newest checkpoint; 0 if it has none. */
  readonly size: ColumnType<number, number, number>
  readonly at: ColumnType<string | null, string | null, string | null>
  /** Why the last try has failed; null if it has not. */
  readonly error: ColumnType<string | null, string | null, string | null>
  readonly error_at: ColumnType<string | null, string | null, string | null>
}

interface AuditKeyTable {
  /** The key's id in signed notes. Eight hex digits. */
  readonly id: string
  readonly tree: number
  /** The text of the verifier key (C2SP signed-note). */
  readonly vkey: string
  /** PKCS#8, sealed with the passphrase. */
  readonly sealed_key: string
  readonly created_at: string
  /** The instant from which it signs nothing any more. Null: it signs. */
  readonly retired_at: ColumnType<string | null, string | null, string | null>
}

/** A card of *Attention* that somebody has put off. */
interface AttentionDeferralTable {
  readonly card: string
  readonly title: ColumnType<string, string, string>
  readonly until: ColumnType<string, string, string>
  readonly reason: ColumnType<string, string, string>
  readonly by: ColumnType<string, string, string>
  readonly at: ColumnType<string, string, string>
}

interface RowCountTable {
  /** The characters of an instant that make the span. */
  readonly level: number
  readonly span: string
  readonly action: string
  readonly status: string
  readonly row_count: number
}

/** The place up to which they are counted: one row. */
interface RowCountPlaceTable {
  readonly id: number
  readonly place: ColumnType<number, number, number>
}

interface LimitTable extends AuthorshipColumns {
  readonly limit_id: string
  readonly name: string
  /** JSON object: all that it says but its name. */
  readonly terms: string
  /** JSON object: another amount, until an instant, with a reason; null: none. */
  readonly override: ColumnType<string | null, string | null | undefined, string | null>
  /** JSON array of a span and a step: the last row that says how much was used. */
  readonly alerted: ColumnType<string | null, never, string | null>
  readonly revision: Generated<number>
  readonly created_at: ColumnType<string, string, never>
  readonly updated_at: string
}

/** A stop that has not ended. */
interface StopTable {
  readonly stop_id: string
  /** JSON: what it is for (db/stops/stop.ts). */
  readonly scope: string
  readonly reason: string
  readonly begun_at: string
  readonly begun_by: string
  readonly until: string | null
}

/** The places of readers of the ledger (db/ledger/cursors/cursors.ts). */
interface ExportCursorTable {
  readonly sink: string
  /** The empty text: of the reader as a whole. */
  readonly stream: string
  /** The last row that was taken. Of the reader as a whole: the leaves of the archive that it has behind it. */
  readonly seq: number
  readonly at: string
  /** Since when it fails, and why; null: it does not. In the row of the reader as a whole. */
  readonly failed_at: string | null
  readonly error: string | null
}

/** The number of the present state of all limits and stops: one row. */
interface LimitSetTable {
  readonly id: number
  readonly revision: ColumnType<number, number, number>
}

/** The count of a limit in a span (db/ledger/meters/meter-book.ts). */
interface LimitMeterTable {
  readonly limit_id: string
  /** The ledger name of one principal; empty: all together. */
  readonly who: string
  readonly span: string
  readonly n: number
  readonly reserved: number
  readonly spent: number
  readonly tat: number
}

/** Costs of calls, in a row for each combination of the first five (db/ledger/counts/spend-counts.ts). */
interface SpendCountTable {
  /** The day of the call's decision, UTC: 2026-11-25. */
  readonly day: string
  readonly principal: string
  readonly provider: string
  readonly model: string
  readonly tool: string
  readonly calls: number
  readonly input_tokens: number
  readonly output_tokens: number
  readonly cache_read_tokens: number
  readonly cache_write_tokens: number
  readonly microusd: number
  readonly estimated_calls: number
  readonly estimated_microusd: number
  readonly unpriced_calls: number
}
