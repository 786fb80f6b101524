import { amountText } from '../../plugins/limits/amount-text.ts'
import type { Rehearsal } from '../../proxy/admin/conditions/rehearsed.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { type AdminSubcommand, subcommandOf } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

interface ProposalView {
  readonly id: string
  readonly by: string
  readonly expires_at: string
  readonly action: string
  readonly change: Readonly<Record<string, unknown>>
  readonly rehearsal: string | null
  readonly status: string
}

const PROPOSALS = '/v1/admin/proposals'

const pathOf = (id: string): string => `${PROPOSALS}/${encodeURIComponent(id)}`

const fetchProposals = async (call: AdminCall, status: string): Promise<readonly ProposalView[]> => {
  const query = new URLSearchParams({ status, limit: '999' }).toString()
  const { proposals } = expectStatus(await call('GET', `${PROPOSALS}?${query}`), 200)
  // The admin API's own shape, of the version that runs.
  return proposals as readonly ProposalView[]
}

export const proposalsCommand = subcommandOf({
  takes: '',
  about: 'what is waiting for a second operator',
  options: {
    status: {
      type: 'string',
      value: 'STATUS',
      default: 'open',
      description: 'open, confirmed, declined, expired or void',
    },
    ...JSON_OPTION,
  },
  run: async ({ call, say, values: { status, json } }) => {
    const all = await fetchProposals(call, status)
    if (json) return say(...jsonLines(all))
    if (all.length === 0) return say(status === 'open' ? 'nothing is waiting' : `none is ${status}`)
    const refused = await Promise.all(all.map((one) => refusedBy(call, one)))
    const rows = all.map((one, at) => [
      ...[one.id, one.by, one.action, one.expires_at, refused[at] ?? '', changeText(one)],
    ])
    say(...alignColumns([['ID', 'BY', 'ACTION', 'UNTIL', 'WOULD REFUSE', 'CHANGE'], ...rows]))
  },
})

async function refusedBy(call: AdminCall, { rehearsal }: ProposalView): Promise<string> {
  if (rehearsal === null) return 'not known'
  const { status, body } = await call('GET', `/v1/admin/rehearsals/${encodeURIComponent(rehearsal)}`)
  // Kept for 30 days.
  if (status !== 200) return 'not known'
  const { totals } = body as Pick<Rehearsal, 'totals'>
  const open = totals.undecidable > 0 ? `, ${totals.undecidable} undecided` : ''
  return `${amountText('calls', totals.newly_refused)}${open}`
}

const changeText = ({ change: { operation, params, body } }: ProposalView): string =>
  [operation, params, body].flatMap((part) => (part === undefined ? [] : textOf(part))).join(' ')

const textOf = (part: unknown): string => (typeof part === 'string' ? part : JSON.stringify(part))

export const confirmCommand = onProposal(
  'confirm',
  'make a change that another operator has proposed',
  async (call, id) => {
    const { cert_chain_pem: chain, ...made } = expectStatus(await call('POST', `${pathOf(id)}/confirm`), 200)
    const what = `${id} is confirmed, and the change is made`
    return typeof chain === 'string' ? [what, ...chain.trimEnd().split('\n')] : [what, ...namesIn(made)]
  },
)

/** The names of new or changed objects, if the answer says any. */
const namesIn = (made: Readonly<Record<string, unknown>>): readonly string[] =>
  ['agent_id', 'principal_id', 'resource_id', 'binding_id'].flatMap((name) =>
    typeof made[name] === 'string' ? [`${name} ${made[name]}`] : [],
  )

export const declineCommand = onProposal(
  'decline',
  'decline a proposal, or withdraw your own',
  async (call, id) => {
    expectStatus(await call('POST', `${pathOf(id)}/decline`), 204)
    return [`${id} is declined`]
  },
)

function onProposal(
  name: string,
  about: string,
  work: (call: AdminCall, id: string) => Promise<readonly string[]>,
): AdminSubcommand {
  return subcommandOf({
    takes: 'PROPOSAL',
    about,
    misuse: `name the proposal: sallyport operator ${name} prop_…`,
    run: async ({ call, say, args: [id] }) => say(...(await work(call, id))),
  })
}
