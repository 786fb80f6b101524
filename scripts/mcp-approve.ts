import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { expect } from './control-client.ts'
import { toolLines } from './mcp-lines.ts'
import {
  resourceNamed,
  resourcePath,
  type ShownResource,
  type ShownTool,
  type Work,
} from './mcp-resources.ts'

const OPTIONS = {
  digest: { type: 'string' },
  yes: { type: 'boolean', default: false },
} as const

/**
 * `mcp approve`: shows how a quarantined tool differs, asks, and approves the definition that was shown and no other: one
 * that came in between is refused by its digest.
 */
export function approveVerb(args: readonly string[]): Work {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: OPTIONS })
  const [name, toolName, ...rest] = positionals
  if (!name || !toolName || rest.length > 0) throw new Error('say which tool: mcp approve NAME TOOL')
  return async (call, say) => {
    const resource = await resourceNamed(call, name)
    const { tool, digest } = waiting(resource, toolName)
    say(...toolLines([tool]))
    if (values.digest === undefined && !values.yes) await ask()
    const path = `${resourcePath(resource.resource_id)}/tools/${encodeURIComponent(toolName)}/approve`
    expect(await call('POST', path, { digest: values.digest ?? digest }), 200)
    say(`approved ${toolName} of ${name} as shown`)
  }
}

function waiting({ name, tools }: ShownResource, toolName: string): { tool: ShownTool; digest: string } {
  const tool = tools.find((one) => one.name === toolName)
  if (!tool) throw new Error(`${name} has no tool of the name ${JSON.stringify(toolName)}`)
  const { state, pending_digest: digest } = tool
  // Without a digest the gateway would approve whatever waits by then.
  if (state !== 'quarantined' || digest === null)
    throw new Error(`no definition of ${toolName} waits for approval: it is ${state}`)
  return { tool, digest }
}

async function ask(): Promise<void> {
  // Who cannot see the difference cannot mean yes.
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new Error(
      'there is no terminal to ask on: approve what show has printed with --digest, or with --yes',
    )
  process.stdout.write('approve this definition? [y/N] ')
  const lines = createInterface({ input: process.stdin })
  try {
    for await (const line of lines) {
      if (/^y(es)?$/i.test(line.trim())) return
      break
    }
  } finally {
    lines.close()
  }
  throw new Error('nothing was approved')
}
