import { type OpenCall, OpenCalls } from '../../../proxy/http/open-calls.ts'
import type { AskCallAgain } from '../../../proxy/http/route.ts'
import { CHAT } from '../gateway.ts'
import { request } from '../mcp/stage.ts'
import type { Entered } from './ways.ts'

interface Door {
  readonly opens: (to: Entered) => boolean
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: unknown
  /** True: who holds less gets less, and what is under way with more is cut. */
  readonly lessForLess?: boolean
}

const agents = ({ kind }: Entered): boolean => kind === 'agent'
const operators = ({ kind }: Entered): boolean => kind === 'operator'
const browsers = ({ session }: Entered): boolean => session

const rpc = (method: string, params = {}): unknown => request(method, { params }).body

/** The doors: at least one of each kind of pipeline. What is asked for changes nothing. */
export const DOORS: Readonly<Record<string, Door>> = {
  models: { opens: agents, method: 'GET', path: '/v1/models' },
  'an LLM call': { opens: agents, method: 'POST', path: '/v1/chat/completions', body: CHAT },
  'MCP, a list': { opens: agents, method: 'POST', path: '/v1/mcp', body: rpc('tools/list') },
  'MCP, a list of one server': {
    ...{ opens: agents, method: 'POST', path: '/v1/mcp/files' },
    body: rpc('tools/list'),
  },
  'MCP, a tool': {
    ...{ opens: agents, method: 'POST', path: '/v1/mcp' },
    body: rpc('tools/call', { name: 'files.read', arguments: {} }),
  },
  'MCP, a tool of one server': {
    ...{ opens: agents, method: 'POST', path: '/v1/mcp/files' },
    body: rpc('tools/call', { name: 'read', arguments: {} }),
  },
  'the ledger’s proofs': {
    ...{ opens: (to) => !to.session, method: 'GET', path: '/v1/audit/key' },
    lessForLess: true,
  },
  administration: { opens: operators, method: 'GET', path: '/v1/admin/agents' },
  'a change': { opens: operators, method: 'POST', path: '/v1/admin/agents', body: {} },
  'an export': { opens: operators, method: 'GET', path: '/v1/admin/audit/export?request_id=none' },
  metrics: { opens: operators, method: 'GET', path: '/metrics' },
  'a page': { opens: browsers, method: 'GET', path: '/proxy/agents' },
  'a form': {
    ...{ opens: browsers, method: 'POST' },
    path: '/proxy/settings/sessions/0000000000000000/end',
  },
}

/**
 * Has calls through a door of every gateway of this process leave what asks them again: a call that was refused leaves
 * nothing. One call at a time.
 */
export function askedAgain(): (call: () => Promise<unknown>) => Promise<AskCallAgain | null> {
  const add: (this: OpenCalls, call: OpenCall) => void = Reflect.get(OpenCalls.prototype, 'add')
  let last: AskCallAgain | null = null
  OpenCalls.prototype.add = function (call) {
    Object.defineProperty(call, 'askAgain', {
      get: () => null,
      set: (ask: AskCallAgain | null) => {
        last = ask ?? last
      },
    })
    add.call(this, call)
  }
  return async (call) => {
    last = null
    await call()
    return last
  }
}
