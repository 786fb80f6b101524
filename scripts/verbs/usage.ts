import type { CapabilityUsage } from '../../proxy/admin/rehearsals/usage.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { fetchUsage, LAST_OPTION, principalIn, windowStart } from '../admin/looking-back.ts'
import { alignColumns, jsonLines } from '../admin/printable.ts'
import { verbOf } from '../command.ts'
import { print } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport usage',
  takes: 'PRINCIPAL',
  about:
    'Shows which capabilities the calls of a principal required, which it holds but did not use, and which it lacked.',
  options: {
    ...LAST_OPTION,
    json: { type: 'boolean', description: 'as the admin API says it' },
    ...DOOR_OPTIONS,
  },
  notes: DOOR_NOTES,
  run: async ({ last, json, ...door }, positionals) => {
    const principal = principalIn(positionals)
    const since = windowStart(last)
    const found = await withAdministration(door, (call) => fetchUsage(call, principal, since))
    print(...(json ? jsonLines(found) : linesOf(principal, found)))
    return 0
  },
})

function linesOf(principal: string, found: CapabilityUsage): readonly string[] {
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
