import { existsSync } from 'node:fs'
import { LAST_OPTION, windowStart } from '../admin/arguments.ts'
import { DOOR_NOTES, DOOR_OPTIONS, withAdministration } from '../admin/door.ts'
import { rehearsalLines, rehearseChanges } from '../admin/rehearsal.ts'
import { capabilitiesIn, JSON_OPTION, verbOf, WrongUsage } from '../command.ts'
import { jsonLines, print } from '../print.ts'

const [REFUSES, UNDECIDED] = [3, 4]

export const verb = verbOf({
  name: 'sallyport rehearse',
  takes: '[PRINCIPAL]',
  misuse: 'name at most one principal',
  make: 'make rehearse ARGS="…"',
  about: `Shows what a change of authority would have done to the calls of the last days, before it is made: who would be stopped, at
what, how often and since when. Changes nothing; the rehearsal is one row of the ledger, and a change may name it.`,
  options: {
    set: {
      type: 'string',
      value: 'CAP,CAP',
      description: 'the whole new set of PRINCIPAL; --set "" is an empty one',
    },
    deactivate: { type: 'boolean', description: 'PRINCIPAL out of service' },
    bind: { type: 'string', value: 'SERVER', description: 'PRINCIPAL may reach that MCP server' },
    unbind: { type: 'string', value: 'SERVER', description: 'PRINCIPAL may not reach it any more' },
    mode: { type: 'string', value: 'MODE', description: 'egress_dpop_mode: off, optional or required' },
    'no-downgrade': { type: 'boolean', description: 'a principal with a proof key must always send a proof' },
    config: {
      type: 'string',
      value: 'DIR',
      description: "the operators' files in DIR, instead of those in force",
    },
    'enforce-tools-call': {
      type: 'boolean',
      description: 'each call of a tool also requires mcp.tools.call',
    },
    ...LAST_OPTION,
    ...JSON_OPTION,
    ...DOOR_OPTIONS,
  },
  notes: `${DOOR_NOTES}
Exit code: 0 nothing would be refused, 3 something would be, 4 something cannot be decided, 2 wrong arguments, 1 any other failure.`,
  failing: { as: 'sallyport', usage: 2, failed: 1 },
  run: async ({ last, json, ...options }, [principal]) => {
    const changes = changesOf(principal, options, await settingsOf(options))
    const since = windowStart(last)
    const found = await withAdministration(options, (call) => rehearseChanges(call, changes, since))
    print(...(json ? jsonLines(found) : rehearsalLines(found)))
    const { newly_refused: refused, undecidable } = found.totals
    return refused > 0 ? REFUSES : undecidable > 0 ? UNDECIDED : 0
  },
})

interface RehearseOptions {
  readonly set?: string
  readonly deactivate?: boolean
  readonly bind?: string
  readonly unbind?: string
  readonly mode?: string
  readonly 'no-downgrade'?: boolean
  readonly 'enforce-tools-call'?: boolean
  readonly config?: string
}

/** The settings of the options, or of a directory of files. Rejects if that cannot be used. */
async function settingsOf(options: RehearseOptions): Promise<object> {
  const { mode, 'no-downgrade': strict, 'enforce-tools-call': enforced, config } = options
  const said = {
    ...(mode !== undefined && { egress_dpop_mode: mode }),
    ...(strict && { no_downgrade: true }),
    ...(enforced && { enforce_tools_call: true }),
  }
  if (config === undefined) return said
  if (Object.keys(said).length > 0)
    throw new WrongUsage('--config cannot be combined with --mode, --no-downgrade or --enforce-tools-call')
  if (!existsSync(config)) throw new WrongUsage(`--config ${config}: there is no such directory`)
  // Only now: without files nothing that reads them has to be loaded.
  const { loadConfiguration, namedChecks } = await import('../../proxy/wiring/configuration.ts')
  const configuration = await loadConfiguration(config, process.env)
  try {
    return {
      egress_dpop_mode: process.env.MCP_PROXY_EGRESS_DPOP_MODE || configuration.dpopMode,
      no_downgrade: configuration.noDowngrade,
      enforce_tools_call: configuration.mcp.enforce_tools_call,
      checks: namedChecks(configuration),
    }
  } finally {
    await configuration.close()
  }
}

function changesOf(
  principal: string | undefined,
  { set, deactivate, bind, unbind }: RehearseOptions,
  settings: object,
): readonly object[] {
  const ofPrincipal = [
    ...(set === undefined ? [] : [{ capabilities: capabilitiesIn(set) }]),
    ...(deactivate ? [{ is_active: false }] : []),
    ...(bind === undefined ? [] : [{ resource: bind, bound: true }]),
    ...(unbind === undefined ? [] : [{ resource: unbind, bound: false }]),
  ]
  if (principal === undefined ? ofPrincipal.length > 0 : ofPrincipal.length === 0)
    throw new WrongUsage('give a principal and a change: acme::bot --set llm.chat')
  const ofAll = Object.keys(settings).length > 0 ? [{ settings }] : []
  return [...ofPrincipal.map((change) => ({ principal, ...change })), ...ofAll]
}
