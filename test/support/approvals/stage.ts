import type { Test } from 'tap'
import type { Answered, Identity, Json } from '../gateway.ts'
import type { RawMcp } from '../mcp/raw-upstream.ts'
import { mcpStage, type Stage, tool, toolServer } from '../mcp/stage.ts'
import { as, operatorNamed } from '../operators.ts'

export interface ApprovalStage {
  readonly stage: Stage
  readonly server: RawMcp
  readonly files: Json
  readonly bot: Identity
  /** Asks as an operator who may approve. */
  readonly approver: ReturnType<typeof as>
  readonly decide: (id: string, verb: 'approve' | 'decline', reason?: string) => Promise<Answered>
}

/** A server `files`, each call of whose tool `pay` an operator must approve, and an agent bound to it. */
export async function approvalStage(t: Test, rule: Json = {}): Promise<ApprovalStage> {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('pay'), tool('read')])
  const files = await stage.register('files', server, { tool_approvals: { pay: 'operator' }, ...rule })
  const bot = await stage.enroll('bot', ['files.use'])
  await stage.bind(bot, files)
  const approver = as(stage, await operatorNamed(stage, 'ann', ['admin.read', 'admin.approve']))
  return {
    ...{ stage, server, files, bot, approver },
    decide: (id, verb, reason) =>
      approver('POST', `/v1/admin/approvals/${id}/${verb}`, reason === undefined ? {} : { reason }),
  }
}

/** Makes an operator who may approve. */
export async function approverOn(stage: Stage): Promise<ApprovalStage['decide']> {
  const ask = as(stage, await operatorNamed(stage, 'ann', ['admin.read', 'admin.approve']))
  return (id, verb, reason) =>
    ask('POST', `/v1/admin/approvals/${id}/${verb}`, reason === undefined ? {} : { reason })
}

/** The approval that a refused call names. */
export const askedIn = ({ json }: Pick<Answered, 'json'>): string => json.error.data.approval
