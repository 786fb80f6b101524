import { GRACE_OPTION, graceIn } from '../admin/arguments.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { type AdminSubcommand, type PrintLines, subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { operatorUrl } from '../admin/whereabouts.ts'
import { commandOf, JSON_OPTION } from '../command.ts'
import { certifyOperator, holdsIdentity, withNextStep } from '../operators/certify.ts'
import {
  fetchOperators,
  OPERATORS_PATH,
  type OperatorView,
  operatorNamed,
  requestedSet,
  SET_OPTIONS,
} from '../operators/operators.ts'
import { confirmCommand, declineCommand, proposalsCommand } from '../operators/proposals.ts'
import { alignColumns, jsonLines } from '../print.ts'

const OUT = {
  out: { type: 'string', value: 'DIR', description: 'where its identity goes (default operators/NAME)' },
} as const

const add = subcommandOf({
  takes: 'NAME',
  about: 'enroll an operator, and write its identity, like an agent’s; the keys are made there',
  misuse: oneName('add NAME --role owner'),
  options: { ...SET_OPTIONS, ...OUT },
  check: requestedSet,
  run: async ({ call, say, values: { out }, args: [name], door, checked: capabilities }) => {
    const directory = out ?? `operators/${name}`
    // Before anything is enrolled.
    if (holdsIdentity(directory))
      throw new Error(`${directory} holds an identity already: choose another --out, or move it away`)
    const body = { operator_name: name, capabilities }
    const then = `then for its certificate: sallyport operator rotate ${name} --out ${directory}`
    const made = await withNextStep(then, async () =>
      expectStatus<OperatorView>(await call('POST', OPERATORS_PATH, body), 201),
    )
    await certifyOperator(call, { operator: made, directory, url: await operatorUrl(call, door) })
    say(`enrolled ${made.principal_id} (${heldBy(made)}) in ${directory}`, 'use it:', ...usage(directory))
  },
})

const rotate = subcommandOf({
  takes: 'NAME',
  about: 'a new certificate for a new key, into its directory; or the first one, into a new directory',
  misuse: oneName('rotate NAME'),
  options: { ...OUT, ...GRACE_OPTION },
  check: graceIn,
  run: async ({ call, say, values: { out }, args: [name], door, checked: hours }) => {
    const operator = await operatorNamed(call, name)
    const directory = out ?? `operators/${operator.operator_name}`
    await certifyOperator(call, { operator, directory, url: await operatorUrl(call, door), hours })
    say(`${operator.principal_id} has a new certificate in ${directory}`)
  },
})

const list = subcommandOf({
  takes: '',
  about: 'every operator',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const all = await fetchOperators(call)
    if (json) return say(...jsonLines(all))
    if (all.length === 0)
      return say(
        `there is no operator yet: ${commandOf('operator NAME=alice ROLE=owner', 'operator add alice --role owner')}`,
      )
    const rows = all.map((one) => [
      one.operator_name,
      one.is_active ? 'active' : 'deactivated',
      one.cert_not_after?.slice(0, 10) ?? 'none',
      one.last_seen_at ?? 'never',
      one.changed_by,
      heldBy(one),
    ])
    say(...alignColumns([['NAME', 'STATE', 'CERTIFICATE', 'SEEN', 'CHANGED BY', 'HOLDS'], ...rows]))
  },
})

const show = onOperator('show', 'one operator, as the admin API says it', async (_call, say, operator) =>
  say(...jsonLines(operator)),
)

const grant = subcommandOf({
  takes: 'NAME',
  about: 'replace its capabilities, from its next request on',
  misuse: oneName('grant NAME --role granter'),
  options: SET_OPTIONS,
  check: requestedSet,
  run: async ({ call, say, args: [name], checked: capabilities }) => {
    const operator = await operatorNamed(call, name)
    const path = `${pathOf(operator)}/capabilities`
    const now = expectStatus<OperatorView>(await call('PATCH', path, { capabilities }), 200)
    say(`${now.principal_id}: ${heldBy(now)} (before: ${heldBy(operator)})`)
  },
})

const deactivate = onOperator(
  'deactivate',
  'it is refused from its next request on, and its sessions end',
  async (call, say, operator) => {
    expectStatus(await call('DELETE', pathOf(operator)), 204)
    say(`${operator.principal_id} is deactivated`)
  },
)

const reactivate = onOperator(
  'reactivate',
  'reactivate it, with the capabilities that it holds',
  async (call, say, operator) => {
    const now = expectStatus<OperatorView>(await call('POST', `${pathOf(operator)}/reactivate`), 200)
    say(`${now.principal_id} is active: ${heldBy(now)}`)
  },
)

const invite = subcommandOf({
  takes: 'NAME',
  about: 'a link by which one person takes its certificate in a browser; good once, for an hour',
  misuse: oneName('invite NAME'),
  run: async ({ call, say, args: [name], door }) => {
    const path = `${pathOf(await operatorNamed(call, name))}/invitation`
    const made = expectStatus<{ path: string; expires_at: string }>(await call('POST', path), 201)
    say(`${await operatorUrl(call, door)}${made.path}`, `good once, until ${made.expires_at}`)
  },
})

const VERBS = {
  add,
  invite,
  list,
  show,
  grant,
  rotate,
  deactivate,
  reactivate,
  proposals: proposalsCommand,
  confirm: confirmCommand,
  decline: declineCommand,
}

export const verb = verbGroup({
  name: 'operator',
  make: 'make operator NAME=alice ROLE=owner, for add',
  about: `Manages operators, and confirms what needs two people. ${DOOR_NOTES}`,
  verbs: VERBS,
  notes: 'What each role holds: docs/operators.md#capabilities.',
})

function onOperator(
  name: string,
  about: string,
  work: (call: AdminCall, say: PrintLines, operator: OperatorView) => Promise<void>,
): AdminSubcommand {
  return subcommandOf({
    takes: 'NAME',
    about,
    misuse: oneName(`${name} NAME`),
    run: async ({ call, say, args: [whose] }) => work(call, say, await operatorNamed(call, whose)),
  })
}

function oneName(words: string): string {
  return `give one name: ${commandOf(`sallyport ARGS="operator ${words}"`, `operator ${words}`)}`
}

const pathOf = ({ principal_id: id }: OperatorView): string => `${OPERATORS_PATH}/${encodeURIComponent(id)}`

const heldBy = ({ capabilities }: OperatorView): string => capabilities.join(', ') || 'nothing'

const usage = (directory: string): readonly string[] => [
  `  export SALLYPORT_OPERATOR=${directory}`,
  `  ${commandOf('sallyport ARGS="operator list"', 'operator list')}`,
]
