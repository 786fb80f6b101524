import type { Json } from '../../gateway.ts'
import { inAuthority, inDetail, isAllowed, isJudged, ofOne, type Rewrite, without } from './rewriting.ts'

/** What the rows themselves contradict. */
export const CONTRADICTED: Readonly<Record<string, Rewrite>> = {
  'a refusal is an allowance': ofOne(
    (row) => isJudged(row) && row.status === 'denied',
    (row) => ({ ...without(row, 'reason', 'refused_by', 'required_capability'), status: 'allowed' }),
    5,
  ),
  'an allowance is a refusal': ofOne(
    isAllowed,
    (row) => ({
      ...inDetail(row, { reason: 'capability_missing', required_capability: 'llm.chat' }),
      status: 'denied',
    }),
    5,
  ),
  'an allowance has a reason': ofOne(isAllowed, (row) => inDetail(row, { reason: 'capability_missing' }), 5),
  'an allowance names no request': ofOne(isAllowed, (row) => ({ ...row, request_id: null }), 5),
  'another reason': ofOne(
    (row) => isJudged(row) && row.detail.reason === 'capability_missing',
    (row) => inDetail(row, { reason: 'mcp_tool_quarantined' }),
    5,
  ),
  'another missing capability': ofOne(
    (row) => isJudged(row) && row.detail.reason === 'capability_missing',
    (row) => inDetail(row, { required_capability: 'other' }),
    5,
  ),
  'another revision': ofOne(
    isJudged,
    (row, { below }) => inAuthority(row, { revision: row.detail.authority.revision + 1 + below(3) }),
    5,
  ),
  'a revision that is none': ofOne(
    isJudged,
    (row, { one }) => inAuthority(row, { revision: one([0, -1, '1', null, true, [1]]) }),
    5,
  ),
  'another principal': ofOne(isJudged, (row) => ({ ...row, principal_id: 'acme::agent::nobody' }), 5),
  'no principal': ofOne(isAllowed, (row) => ({ ...row, principal_id: null }), 5),
  'another configuration': ofOne(isJudged, (row) => ({ ...row, config_digest: 'e'.repeat(64) }), 5),
  'another mode': ofOne(
    isJudged,
    (row) =>
      inAuthority(row, {
        mode: {
          egress_dpop_mode: row.detail.authority.mode.egress_dpop_mode === 'off' ? 'required' : 'off',
          no_downgrade: false,
        },
      }),
    5,
  ),
  'a mode that is none': ofOne(
    isJudged,
    (row, { one }) =>
      inAuthority(row, {
        mode: one([
          null,
          'off',
          {},
          { egress_dpop_mode: 'x', no_downgrade: false },
          { egress_dpop_mode: 'off', no_downgrade: 1 },
        ]),
      }),
    5,
  ),
  'a certificate of nobody': ofOne(isAllowed, (row) => ({ ...row, cert_thumbprint: 'ff'.repeat(32) }), 5),
  'no certificate': ofOne(isAllowed, (row) => ({ ...row, cert_thumbprint: null }), 5),
  'another demand': ofOne(
    (row) => isAllowed(row),
    (row) => inAuthority(row, { demanded: ['x', ...row.detail.authority.demanded] }),
    5,
  ),
  'nothing demanded': ofOne(
    (row) => isAllowed(row) && row.detail.authority.demanded.length > 0,
    (row) => inAuthority(row, { demanded: [] }),
    5,
  ),
  'a demand that is none': ofOne(
    isJudged,
    (row, { one }) => inAuthority(row, { demanded: one([null, 'llm.chat', {}, [1], [null]]) }),
    5,
  ),
  'a narrower token': ofOne(
    (row) => isAllowed(row) && row.detail.authority.demanded.length > 0,
    (row) => inAuthority(row, { scope: ['other'] }),
    5,
  ),
  'a scope that is none': ofOne(
    isJudged,
    (row, { one }) => inAuthority(row, { scope: one([null, 'x', {}, [1]]) }),
    5,
  ),
  'no authority': ofOne(
    isJudged,
    (row, { one }) => inDetail(row, { authority: one([null, 1, 'x', [], {}]) }),
    5,
  ),
  'a check that was not asked': ofOne(
    isJudged,
    (row) => inAuthority(row, { checks: [{ name: 'x', digest: null, verdict: 'pass' }] }),
    5,
  ),
  'a check that refused': ofOne(
    (row) => isAllowed(row) && row.detail.authority.checks.some(({ shadow }: Json) => !shadow),
    (row) =>
      inAuthority(row, {
        checks: row.detail.authority.checks.map((check: Json) => ({ ...check, verdict: 'refuse' })),
      }),
    5,
  ),
  'checks left out': ofOne(
    (row) => isAllowed(row) && row.detail.authority.checks.some(({ shadow }: Json) => !shadow),
    (row) => inAuthority(row, { checks: [] }),
    5,
  ),
  'checks that are none': ofOne(
    isJudged,
    (row, { one }) =>
      inAuthority(row, {
        checks: one([null, 'x', {}, [1], [null], [{}], [{ name: 1, digest: null, verdict: 'pass' }]]),
      }),
    5,
  ),
  'another tool of no server': ofOne(
    (row) => isAllowed(row) && row.action === 'mcp_tools_call',
    (row) => ({ ...row, tool: 'other.read' }),
    5,
  ),
  'another definition': ofOne(
    (row) => isAllowed(row) && row.action === 'mcp_tools_call',
    (row) => inAuthority(row, { pin: 'other' }),
    5,
  ),
  'another binding': ofOne(
    (row) => isAllowed(row) && row.action === 'mcp_tools_call',
    (row) => inAuthority(row, { binding: 'mcpb_0' }),
    5,
  ),
  'another revision of the server': ofOne(
    (row) => isAllowed(row) && row.action === 'mcp_tools_call',
    (row) => inAuthority(row, { resource: { id: 'mcpr_1', revision: 99 } }),
    5,
  ),
  'a server that is none': ofOne(
    (row) => isAllowed(row) && row.action === 'mcp_tools_call',
    (row, { one }) =>
      inAuthority(row, {
        resource: one([null, 1, 'mcpr_1', {}, { id: 'mcpr_1' }, { id: 'x', revision: 1 }, []]),
      }),
    5,
  ),
  'a chat that names a server': ofOne(
    (row) => isAllowed(row) && row.action === 'egress_llm_chat',
    (row) => inAuthority(row, { resource: { id: 'mcpr_1', revision: 1 } }),
    5,
  ),
  'an allowed summary': ofOne(isAllowed, (row) => inDetail(row, { summarised: { count: 2 } }), 5),
  'a summary of no count': ofOne(
    (row) => row.detail.summarised !== undefined,
    (row, { one }) =>
      inDetail(row, { summarised: one([{}, null, 1, { count: 0 }, { count: '9' }, { count: -1 }]) }),
    5,
  ),
}
