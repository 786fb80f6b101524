import { expectStatus } from '../admin/call.ts'
import { REHEARSE_OPTION, sayRehearsed } from '../admin/rehearsal.ts'
import { subcommandOf } from '../admin/subcommand.ts'
import { toolPairs } from './add.ts'
import { mcpCommand, type ResourceDetailView, resourceNamed, resourcePath } from './resources.ts'

/** Changes the least proof that a server and its tools take. Tools that are not named stay as they are. */
export const proofCommand = subcommandOf({
  takes: 'NAME',
  about: 'say the least proof that it takes of people (docs/people.md): certificate, key or none',
  misuse: `name the server: ${mcpCommand('proof NAME --min key')}`,
  options: {
    min: { type: 'string', value: 'PROOF', description: 'of whatever is not said otherwise' },
    tool: {
      type: 'string',
      multiple: true,
      value: 'T=PROOF',
      description: 'of one tool instead; may be repeated',
    },
    ...REHEARSE_OPTION,
  },
  check: ({ min, tool = [] }) => {
    if (min === undefined && tool.length === 0) throw new Error('give --min or --tool')
    return { ...(min !== undefined && { min_proof: min }), tools: toolPairs('tool', 'PROOF', tool) }
  },
  run: async ({ call, say, args: [name], values: { rehearse }, checked: { tools, ...changes } }) => {
    const { resource_id: id, tool_min_proof: before } = await resourceNamed(call, name)
    const body = {
      ...changes,
      ...(Object.keys(tools).length > 0 && { tool_min_proof: { ...before, ...tools } }),
    }
    if (rehearse) return sayRehearsed(call, say, { resource: id, ...body })
    const now = expectStatus<ResourceDetailView>(await call('PATCH', resourcePath(id), body), 200)
    const own = Object.entries(now.tool_min_proof).map(([tool, proof]) => `, ${tool}: ${proof}`)
    say(`${now.name} takes at least: ${now.min_proof}${own.join('')}`)
  },
})
