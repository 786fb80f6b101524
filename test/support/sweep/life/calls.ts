import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import { entry } from '../../db/scratch-ledger.ts'
import type { Configuration, Person } from './people.ts'
import type { Society } from './society.ts'
import type { Asked, Fate } from './verdict.ts'

interface Judged {
  readonly id: string
  readonly at: number
  readonly kind: 'chat' | 'call' | 'list'
  readonly fate: Fate
  /** What commits to its body. */
  readonly commitment: JsonObject
}

const modeOf = ({ mode, noDowngrade }: Configuration): JsonObject => ({
  egress_dpop_mode: mode,
  no_downgrade: noDowngrade,
})

/** The row of a decision, as the gateway would write it. */
export function decisionOf(asked: Asked, judged: Judged, society: Society): LedgerEntry {
  const { who, tool, thumbprint, key } = asked
  const { id, at, kind, fate, commitment } = judged
  const { reason, missing } = fate
  const { digest } = society.configuration
  const action = kind === 'chat' ? 'egress_llm_chat' : kind === 'call' ? 'mcp_tools_call' : 'mcp_tools_list'
  return entry({
    ...{ at, request_id: id, principal_id: who.subject, principal_type: who.type, action },
    ...{ status: reason === null ? 'allowed' : 'denied', tool: tool === undefined ? null : `files.${tool}` },
    ...{
      model: kind === 'chat' ? 'gpt-5' : null,
      cert_thumbprint: thumbprint,
      dpop_jkt: key,
      config_digest: digest,
    },
    detail: {
      ...{ method: 'POST', path: kind === 'chat' ? '/v1/chat/completions' : '/v1/mcp', ...commitment },
      authority: authorityOf(asked, fate, society),
      ...(reason !== null && { reason, refused_by: 'capability' }),
      ...(missing !== undefined && { required_capability: missing }),
    },
  })
}

function authorityOf({ who, tool }: Asked, { demanded, reason }: Fate, society: Society): JsonObject {
  const { configuration, server, bindings } = society
  const binding = bindings.get(who.subject)
  const pin = tool === undefined ? undefined : (server.tools.get(tool) ?? undefined)
  const passed = configuration.checks.map((name) => ({
    ...{ name, digest: `of ${name}`, verdict: 'pass' },
    ...(name === 'watch' && { shadow: true }),
  }))
  return {
    ...{
      demanded,
      revision: who.revision,
      mode: modeOf(configuration),
      checks: reason === null ? passed : [],
    },
    ...(tool !== undefined && {
      resource: { id: 'mcpr_1', revision: server.revision },
      ...(binding !== undefined && { binding }),
      ...(pin !== undefined && { pin }),
    }),
  }
}

/** What one row says that stands for many refusals, of a principal that lacks `llm.chat`. */
export const summaryOf = (
  who: Person,
  count: number,
  times: { readonly since: string; readonly until: string },
  { configuration }: Society,
): JsonObject => ({
  ...{ reason: 'capability_missing', refused_by: 'capability', required_capability: 'llm.chat' },
  authority: { demanded: ['llm.chat'], revision: who.revision, mode: modeOf(configuration) },
  summarised: { count: count + 1, digest: 'f'.repeat(64), ...times },
})

type Said = readonly [action: string, detail: JsonObject, values: Partial<LedgerEntry>]

/** Rows that say nothing of authority: refusals of strangers and of operators, and somebody who signed in. */
export function noteOf(kind: 'strangers' | 'refused' | 'signed-in', count: number, since: string): Said {
  if (kind === 'strangers')
    return [
      'auth.refused',
      { reason: 'certificate_not_pinned', count: 1 + count, since },
      { status: 'denied' },
    ]
  if (kind === 'refused') {
    const values = { status: 'denied', principal_type: 'operator' }
    return ['agent.capabilities_patched', { reason: 'forbidden', via: 'certificate' }, values]
  }
  // What a table that is opened in a spreadsheet would run.
  const values = { principal_id: '=op', principal_type: 'operator', tool: '-x', model: '@y,"z"' } as const
  return ['admin.sign_in', { via: 'oidc', note: '=1+1, "é"\r\n' }, values]
}
