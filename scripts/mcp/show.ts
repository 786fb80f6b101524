import { parseArgs } from 'node:util'
import { resourceLines, wholeToolLines } from './lines.ts'
import { bindingsOf, toolNamed, type Work, wholeResourceNamed } from './resources.ts'

/** `mcp show`: one server in short, or one of its tools with its definitions whole. */
export function showVerb(args: readonly string[]): Work {
  const { positionals } = parseArgs({ args: [...args], allowPositionals: true, options: {} })
  const [name, tool, ...rest] = positionals
  if (!name || tool === '' || rest.length > 0) throw new Error('say which server: mcp show NAME [TOOL]')
  return async (call, say) => {
    const resource = await wholeResourceNamed(call, name)
    if (tool === undefined) say(...resourceLines(resource, await bindingsOf(call, resource)))
    else say(...wholeToolLines(toolNamed(resource, tool)))
  }
}
