import type { WhatIfVerdict } from '../../proxy/admin/principals/what-if.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { callerPath, principalIn } from '../admin/looking-back.ts'
import { alignColumns, jsonLines } from '../admin/printable.ts'
import { verbOf, WrongUsage } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport what-if',
  takes: 'PRINCIPAL',
  about: 'Says, gate by gate, if a call would be let through now. Makes no call.',
  options: {
    model: { type: 'string', value: 'MODEL', description: 'a call of this model' },
    tool: { type: 'string', value: 'SERVER.TOOL', description: 'a call of this tool of an MCP server' },
    json: { type: 'boolean', description: 'as the admin API says it' },
    ...DOOR_OPTIONS,
  },
  notes: `${DOOR_NOTES}\nExit code: 0 if it would be let through, 1 if not.`,
  run: async ({ model, tool, json, ...door }, positionals) => {
    const principal = principalIn(positionals)
    if ((model === undefined) === (tool === undefined)) throw new WrongUsage('give --model or --tool')
    const query = new URLSearchParams(model === undefined ? { tool: tool ?? '' } : { model }).toString()
    const found = await withAdministration(door, async (call) =>
      expectStatus<WhatIfVerdict>(await call('GET', `${callerPath(principal)}/what-if?${query}`), 200),
    )
    print(...(json ? jsonLines(found) : linesOf(found)))
    return found.allowed ? 0 : 1
  },
})

const linesOf = ({ allowed, refusal, gates, providers }: WhatIfVerdict): readonly string[] => [
  ...alignColumns(gates.map(({ gate, verdict }) => [gate, verdict.replace('_', ' ')])),
  allowed
    ? `it would be let through${providers.length > 0 ? `, to ${providers.join(', ')}` : ''}`
    : `it would be refused: ${refusal?.reason}: ${refusal?.message}`,
]
