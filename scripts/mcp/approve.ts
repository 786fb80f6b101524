import { createInterface } from 'node:readline'
import { expect } from '../admin/call.ts'
import { subcommandOf } from '../admin/subcommand.ts'
import { mcpCommand } from './command.ts'
import { pendingLines } from './lines.ts'
import { resourcePath, toolNamed, type WholeTool, wholeResourceNamed } from './resources.ts'

/**
 * `mcp approve`: shows the pending definition, whole, and how it differs, asks, and approves the definition
 * that was shown and no other: one that came in between is refused by its digest.
 */
export const approve = subcommandOf({
  takes: 'NAME TOOL',
  about: 'show what waits, whole, and how it differs, ask, and approve exactly that definition',
  options: {
    digest: {
      type: 'string',
      value: 'HEX',
      description: 'only the definition of this digest, as show printed it, without asking',
    },
    yes: { type: 'boolean', default: false, description: 'whatever is shown, without asking' },
  },
  work: ({ digest: chosen, yes }, [name, toolName, ...rest]) => {
    if (!name || !toolName || rest.length > 0)
      throw new Error(`say which tool: ${mcpCommand('approve NAME TOOL')}`)
    return async (call, say) => {
      const resource = await wholeResourceNamed(call, name)
      const tool = toolNamed(resource, toolName)
      const digest = pendingDigest(tool)
      say(...pendingLines(tool))
      if (chosen === undefined && !yes) await ask()
      const path = `${resourcePath(resource.resource_id)}/tools/${encodeURIComponent(toolName)}/approve`
      expect(await call('POST', path, { digest: chosen ?? digest }), 200)
      say(`approved ${toolName} of ${name} as shown`)
    }
  },
})

/** Returns the digest of the pending definition. Throws one sentence where none is pending. */
function pendingDigest({ name, state, pending_digest: digest }: WholeTool): string {
  // Without a digest the gateway would approve whatever waits by then.
  if (state !== 'quarantined' || digest === null)
    throw new Error(`no definition of ${name} waits for approval: it is ${state}`)
  return digest
}

async function ask(): Promise<void> {
  // Somebody who cannot see the difference cannot mean yes.
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
