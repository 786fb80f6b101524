import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { expect } from '../control-client.ts'
import { pendingLines } from './lines.ts'
import { resourcePath, toolNamed, type WholeTool, type Work, wholeResourceNamed } from './resources.ts'

const OPTIONS = {
  digest: { type: 'string' },
  yes: { type: 'boolean', default: false },
} as const

/**
 * `mcp approve`: shows what waits, whole, and how it differs, asks, and approves the definition that was shown and no other:
 * one that came in between is refused by its digest.
 */
export function approveVerb(args: readonly string[]): Work {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: OPTIONS })
  const [name, toolName, ...rest] = positionals
  if (!name || !toolName || rest.length > 0) throw new Error('say which tool: mcp approve NAME TOOL')
  return async (call, say) => {
    const resource = await wholeResourceNamed(call, name)
    const tool = toolNamed(resource, toolName)
    const digest = waiting(tool)
    say(...pendingLines(tool))
    if (values.digest === undefined && !values.yes) await ask()
    const path = `${resourcePath(resource.resource_id)}/tools/${encodeURIComponent(toolName)}/approve`
    expect(await call('POST', path, { digest: values.digest ?? digest }), 200)
    say(`approved ${toolName} of ${name} as shown`)
  }
}

/** The digest of what waits. */
function waiting({ name, state, pending_digest: digest }: WholeTool): string {
  // Without a digest the gateway would approve whatever waits by then.
  if (state !== 'quarantined' || digest === null)
    throw new Error(`no definition of ${name} waits for approval: it is ${state}`)
  return digest
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
