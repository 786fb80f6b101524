import type { WhatIfVerdict } from '../../proxy/admin/principals/what-if.ts'
import type { CapabilityUsage } from '../../proxy/admin/rehearsals/usage.ts'
import { LAST_OPTION, principalPath, windowStart } from '../admin/arguments.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { commandOf, JSON_OPTION, verbOf, WrongUsage } from '../command.ts'
import { alignColumns, jsonLines, print } from '../print.ts'

const ONE_PRINCIPAL = 'name one principal: acme::bot'

/** Asks for the usage of a principal. Throws one sentence. */
async function fetchUsage(call: AdminCall, principal: string, since: string): Promise<CapabilityUsage> {
  const query = new URLSearchParams({ since }).toString()
  return expectStatus<CapabilityUsage>(await call('GET', `${principalPath(principal)}/usage?${query}`), 200)
}

const usage = verbOf({
  name: 'sallyport usage',
  takes: 'PRINCIPAL',
  misuse: ONE_PRINCIPAL,
  about:
    'Shows which capabilities the calls of a principal required, which it holds but did not use, and which it lacked.',
  options: { ...LAST_OPTION, ...JSON_OPTION, ...DOOR_OPTIONS },
  notes: DOOR_NOTES,
  run: async ({ last, json, ...door }, [principal]) => {
    const since = windowStart(last)
    const found = await withAdministration(door, (call) => fetchUsage(call, principal, since))
    print(...(json ? jsonLines(found) : usageLines(principal, found)))
    return 0
  },
})

function usageLines(principal: string, found: CapabilityUsage): readonly string[] {
  const rows = found.capabilities.map((one) => [
    one.capability,
    one.held ? 'held' : 'lacking',
    String(one.allowed),
    String(one.denied),
    one.last_allowed_at ?? one.last_denied_at ?? 'never',
    [...one.tools, ...one.models].join(' '),
  ])
  const titles = ['CAPABILITY', '', 'ALLOWED', 'REFUSED', 'LAST', 'AT']
  return [
    `${principal}: ${found.decisions} decisions since ${found.since}`,
    ...(rows.length > 0 ? alignColumns([titles, ...rows]) : []),
    `held but not used: ${found.unused.join(', ') || 'nothing'}`,
    `lacking: ${found.missing.join(', ') || 'nothing'}`,
  ]
}

const suggest = verbOf({
  name: 'sallyport suggest',
  takes: 'PRINCIPAL',
  misuse: ONE_PRINCIPAL,
  about:
    'Prints the smallest set that would have allowed every allowed call of a principal, as a rehearsal that is ready to run.',
  options: { ...LAST_OPTION, ...DOOR_OPTIONS },
  notes: `${DOOR_NOTES} A quiet window suggests too little: check how many decisions it is based on.`,
  run: async ({ last, ...door }, [principal]) => {
    const since = windowStart(last)
    const { decisions, suggested, unused } = await withAdministration(door, (call) =>
      fetchUsage(call, principal, since),
    )
    const words = `${principal} --set ${suggested.join(',') || '""'} --last ${last}`
    print(
      `${decisions} decisions since ${since} used ${suggested.join(', ') || 'nothing'}; held but not used: ${unused.join(', ') || 'nothing'}`,
      commandOf(`rehearse ARGS='${words}'`, `rehearse ${words}`),
    )
    return 0
  },
})

const whatIf = verbOf({
  name: 'sallyport what-if',
  takes: 'PRINCIPAL',
  misuse: ONE_PRINCIPAL,
  about: 'Says, gate by gate, if a call would be let through now. Makes no call.',
  options: {
    model: { type: 'string', value: 'MODEL', description: 'a call of this model' },
    tool: { type: 'string', value: 'SERVER.TOOL', description: 'a call of this tool of an MCP server' },
    ...JSON_OPTION,
    ...DOOR_OPTIONS,
  },
  notes: `${DOOR_NOTES}\nExit code: 0 if it would be let through, 1 if not.`,
  run: async ({ model, tool, json, ...door }, [principal]) => {
    if ((model === undefined) === (tool === undefined)) throw new WrongUsage('give --model or --tool')
    const query = new URLSearchParams(model === undefined ? { tool: tool ?? '' } : { model }).toString()
    const found = await withAdministration(door, async (call) =>
      expectStatus<WhatIfVerdict>(await call('GET', `${principalPath(principal)}/what-if?${query}`), 200),
    )
    print(...(json ? jsonLines(found) : verdictLines(found)))
    return found.allowed ? 0 : 1
  },
})

const verdictLines = ({ allowed, refusal, gates, providers }: WhatIfVerdict): readonly string[] => [
  ...alignColumns(gates.map(({ gate, verdict }) => [gate, verdict.replace('_', ' ')])),
  allowed
    ? `it would be let through${providers.length > 0 ? `, to ${providers.join(', ')}` : ''}`
    : `it would be refused: ${refusal?.reason}: ${refusal?.message}`,
]

export const verbs = { usage, suggest, 'what-if': whatIf }
