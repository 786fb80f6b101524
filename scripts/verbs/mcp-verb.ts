import { parseArgs } from 'node:util'
import { messageOf } from '../../db/error-message.ts'
import { readSettings, type Settings } from '../../proxy/settings.ts'
import { visible } from '../../proxy/visible.ts'
import { type Call, expect, withControl } from '../control-client.ts'
import { addVerb } from '../mcp/add.ts'
import { approveVerb } from '../mcp/approve.ts'
import { bindTo, unbindFrom } from '../mcp/bind.ts'
import { jsonLines, printable, resourceTable, toolLines, toolTotals, unknownLines } from '../mcp/lines.ts'
import {
  bindingsOf,
  resourceNamed,
  resourcePath,
  resources,
  type Say,
  type ShownResource,
  type Work,
  wholeResource,
} from '../mcp/resources.ts'
import { showVerb } from '../mcp/show.ts'

const VERBS: Readonly<Record<string, (args: readonly string[]) => Work>> = {
  add: addVerb,
  list: listVerb,
  show: showVerb,
  refresh: (args) => named('refresh NAME', args, refresh),
  approve: approveVerb,
  disable: (args) => named('disable NAME', args, disable),
  enable: (args) => named('enable NAME', args, enable),
  bind: (args) => withIds('bind NAME ID…', args, bindTo),
  unbind: (args) => withIds('unbind NAME ID…', args, unbindFrom),
  remove: (args) => named('remove NAME', args, remove),
}

/** `sallyport mcp`. Throws one sentence. */
export function mcpVerb(args: readonly string[]): Promise<void> {
  return perform(
    args,
    () => readSettings(process.env, process.cwd()),
    (text) => process.stdout.write(text),
  )
}

/** Understands the arguments, and only then asks for the settings and opens the control socket. Throws one sentence. */
export async function perform(
  [name = '', ...args]: readonly string[],
  settings: () => Settings,
  write: (text: string) => unknown,
): Promise<void> {
  const verb = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined
  if (!verb) throw new Error(`say what to do: mcp ${Object.keys(VERBS).join('|')}; --help says more`)
  const work = verb(args)
  const say: Say = (...lines) => void write(printable(lines))
  try {
    await withControl(settings(), (call) => work(call, say))
  } catch (error) {
    // What is wrong with a server may be told in its own words.
    throw new Error(visible(messageOf(error)), { cause: error })
  }
}

function listVerb(args: readonly string[]): Work {
  const { values } = parseArgs({ args: [...args], options: { json: { type: 'boolean', default: false } } })
  return async (call, say) => {
    const all = await resources(call)
    if (values.json) say(...jsonLines(all))
    else say(...resourceTable(all, await bindingsOf(call)))
  }
}

async function refresh(call: Call, say: Say, { name, resource_id }: ShownResource): Promise<void> {
  const now = wholeResource(await call('POST', `${resourcePath(resource_id)}/refresh`), 200)
  if (now.last_error !== null) throw new Error(`${name} could not be read: ${now.last_error}`)
  say(`${name} was read: ${toolTotals(now.tools)}`)
  const waiting = now.tools.filter(({ state }) => state === 'quarantined')
  if (waiting.length > 0) say(...toolLines(waiting), `look at it, then: sallyport mcp approve ${name} TOOL`)
  say(...unknownLines(now))
}

async function disable(call: Call, say: Say, { name, resource_id }: ShownResource): Promise<void> {
  expect(await call('PATCH', resourcePath(resource_id), { enabled: false }), 200)
  say(`${name} is disabled: nothing of it is listed or called; its tools, approvals and bindings stay`)
}

async function enable(call: Call, say: Say, { name, resource_id }: ShownResource): Promise<void> {
  expect(await call('PATCH', resourcePath(resource_id), { enabled: true }), 200)
  say(`${name} is enabled, with the tools that are approved`)
}

async function remove(call: Call, say: Say, { name, resource_id }: ShownResource): Promise<void> {
  expect(await call('DELETE', resourcePath(resource_id)), 204)
  say(`${name} is removed, with its tools and bindings`)
}

function named(
  usage: string,
  args: readonly string[],
  work: (call: Call, say: Say, resource: ShownResource) => Promise<void>,
): Work {
  const { positionals } = parseArgs({ args: [...args], allowPositionals: true, options: {} })
  const [name, ...rest] = positionals
  if (!name || rest.length > 0) throw new Error(`say which server: mcp ${usage}`)
  return async (call, say) => work(call, say, await resourceNamed(call, name))
}

function withIds(
  usage: string,
  args: readonly string[],
  work: (call: Call, say: Say, resource: ShownResource, ids: readonly string[]) => Promise<void>,
): Work {
  const { positionals } = parseArgs({ args: [...args], allowPositionals: true, options: {} })
  const [name, ...ids] = positionals
  if (!name || ids.length === 0) throw new Error(`say which server and whose: mcp ${usage}`)
  return async (call, say) => work(call, say, await resourceNamed(call, name), ids)
}
