import type { z } from 'zod'
import type { approvalSummary, approvalView } from '../../proxy/admin/approvals/operations.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { commandOf, JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const APPROVALS = '/v1/admin/approvals'

const approvalsCommand = (words: string): string =>
  commandOf(`sallyport ARGS="approvals ${words}"`, `approvals ${words}`)

const ONE_CALL = `name one call by the id of its approval: ${approvalsCommand('list')} shows them`

type ApprovalSummary = z.output<typeof approvalSummary>
type ApprovalView = z.output<typeof approvalView>

const pathOf = (id: string): string => `${APPROVALS}/${encodeURIComponent(id)}`

const fetchApproval = async (call: AdminCall, id: string): Promise<ApprovalView> =>
  expectStatus<ApprovalView>(await call('GET', pathOf(id)), 200)

const list = subcommandOf({
  takes: '',
  about: 'the calls that wait for an approval; with --all, those of the last day too',
  options: {
    ...JSON_OPTION,
    all: { type: 'boolean', default: false, description: 'those that were decided, or are over, too' },
  },
  run: async ({ call, say, values: { json, all } }) => {
    const path = `${APPROVALS}?limit=999${all ? '' : '&status=open'}`
    const { approvals } = expectStatus<{ readonly approvals: readonly ApprovalSummary[] }>(
      await call('GET', path),
      200,
    )
    if (json) return say(...jsonLines(approvals))
    if (approvals.length === 0) return say('no call waits for an approval')
    const rows = approvals.map((one) => [
      ...[one.id, one.status, one.principal, `${one.resource}.${one.tool}`, one.expires_at],
    ])
    say(...alignColumns([['ID', 'STATE', 'WHOSE', 'TOOL', 'UNTIL'], ...rows]))
  },
})

const show = subcommandOf({
  takes: 'ID',
  about: 'one call, with all of its arguments',
  misuse: ONE_CALL,
  options: JSON_OPTION,
  run: async ({ call, say, values: { json }, args: [id] }) => {
    const approval = await fetchApproval(call, id)
    say(...(json ? jsonLines(approval) : approvalLines(approval)))
  },
})

function approvalLines(approval: ApprovalView): readonly string[] {
  const { arguments: args, definition } = approval
  const facts: readonly (readonly [string, string | null])[] = [
    ['state', approval.status],
    ['whose', `${approval.principal} (${approval.principal_type})`],
    ['client', approval.client],
    ['tool', `${approval.resource}.${approval.tool}`],
    ['request', approval.request_id],
    ['asked', approval.created_at],
    ['until', approval.expires_at],
    ['decided', approval.decided_by && `${approval.decided_at} by ${approval.decided_by}`],
    ['reason', approval.reason],
  ]
  return [
    approval.id,
    ...facts.flatMap(([title, text]) => (text === null ? [] : [`  ${title.padEnd(10)}${text}`])),
    ...(args === null ? [] : ['all of its arguments:', withCountedSpaces(args)]),
    ...(definition === null ? [] : ['what the tool says of itself:', ...jsonLines(definition)]),
  ]
}

/** Writes many spaces in a row as their number: a terminal would show what stands behind them far below. */
const withCountedSpaces = (text: string): string =>
  text.replace(/ {4,}/g, ({ length }) => `[${length} spaces]`)

const REASON = {
  reason: { type: 'string', value: 'TEXT', description: 'why: the caller reads it' },
} as const

const approve = subcommandOf({
  takes: 'ID',
  about: 'let exactly this call pass, once; look at it with show first',
  misuse: ONE_CALL,
  options: REASON,
  run: async ({ call, say, values: { reason }, args: [id] }) => {
    expectStatus(await call('POST', `${pathOf(id)}/approve`, { reason }), 204)
    say(`approved: the call passes once, if it is sent again before its time is over`)
  },
})

const decline = subcommandOf({
  takes: 'ID',
  about: 'refuse it; its caller is told the reason',
  misuse: ONE_CALL,
  options: REASON,
  run: async ({ call, say, values: { reason }, args: [id] }) => {
    expectStatus(await call('POST', `${pathOf(id)}/decline`, { reason }), 204)
    say('declined')
  },
})

export const verb = verbGroup({
  name: 'approvals',
  make: 'make sallyport ARGS="approvals VERB …"',
  about: `Shows calls that wait for an approval, and decides about them. ${DOOR_NOTES}`,
  verbs: { list, show, approve, decline },
  notes: 'Nobody decides about a call of its own, and the operator secret decides about none.',
  helpCommand: approvalsCommand('--help'),
})
