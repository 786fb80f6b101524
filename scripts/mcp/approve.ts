import { createInterface } from 'node:readline'
import { expectStatus } from '../admin/call.ts'
import { subcommandOf } from '../admin/subcommand.ts'
import { printVerbatim } from '../print.ts'
import { pendingLines, pendingServerLines } from './lines.ts'
import {
  mcpCommand,
  type ResourceDetailView,
  readResourceNamed,
  resourcePath,
  type ToolDetailView,
  toolNamed,
} from './resources.ts'

/**
 * Shows a waiting definition whole with its differences, asks, and approves or rejects exactly that: by its
 * digest, and by `If-Match` of the server.
 */
const decidingCommand = (verb: 'approve' | 'reject', takes: 'NAME TOOL' | 'NAME [TOOL]', about: string) =>
  subcommandOf({
    takes,
    about,
    misuse: `name the server, and the tool: ${mcpCommand(`${verb} ${takes}`)}`,
    options: {
      digest: {
        type: 'string',
        value: 'HEX',
        description: `${verb} only this digest, as show printed it, without asking`,
      },
      yes: { type: 'boolean', default: false, description: `${verb} whatever is shown, without asking` },
    },
    run: async ({ call, say, values: { digest: chosen, yes }, args: [name, toolName] }) => {
      const { resource, etag: ifMatch } = await readResourceNamed(call, name)
      const { path, digest, lines, what, question } = waitingIn(resource, toolName)
      say(...lines)
      if (chosen === undefined && !yes) await ask(verb === 'approve' ? question : `Reject ${what}?`)
      const at = `${resourcePath(resource.resource_id)}/${path}/${verb}`
      expectStatus(await call('POST', at, { digest: chosen ?? digest }, { ifMatch }), 200)
      say(verb === 'approve' ? `approved ${what} as shown` : `rejected ${what}: it stays in quarantine`)
    },
  })

export const approveCommand = decidingCommand(
  'approve',
  'NAME [TOOL]',
  'show all that is waiting, and how it differs, ask, and approve exactly that; without TOOL, what the server says about itself',
)

export const rejectCommand = decidingCommand(
  'reject',
  'NAME TOOL',
  'show a waiting tool, ask, and reject it: it asks again only with another definition',
)

interface ApprovalPrompt {
  /** Relative to that of the resource. */
  readonly path: string
  readonly digest: string
  /** The whole definition, for a person to read. */
  readonly lines: readonly string[]
  readonly what: string
  readonly question: string
}

/** Finds the waiting definition of a tool, or of the server itself. Throws one sentence if there is none. */
function waitingIn(resource: ResourceDetailView, toolName: string | undefined): ApprovalPrompt {
  const { name, pending_server_digest: digest } = resource
  if (toolName !== undefined) {
    const tool = toolNamed(resource, toolName)
    return {
      path: `tools/${encodeURIComponent(toolName)}`,
      digest: pendingDigest(tool),
      lines: pendingLines(tool),
      what: `${toolName} of ${name}`,
      question: 'approve this definition?',
    }
  }
  if (digest === null)
    throw new Error(
      `${name} says nothing new about itself: name a tool, ${mcpCommand(`approve ${name} TOOL`)}`,
    )
  return {
    path: 'server',
    digest,
    lines: pendingServerLines(resource),
    what: `what ${name} says about itself`,
    question: 'show this to models?',
  }
}

/** Returns the digest of the pending definition. Throws one sentence if none is pending. */
function pendingDigest({ name, state, pending_digest: digest }: ToolDetailView): string {
  if (state === 'gone' || digest === null)
    throw new Error(`no definition of ${name} is waiting for approval: it is ${state}`)
  return digest
}

async function ask(question: string): Promise<void> {
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new Error(
      'there is no terminal to ask on: approve what show has printed with --digest, or with --yes',
    )
  printVerbatim(`${question} [y/N] `)
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
