import fc from 'fast-check'
import { CHAT, type Json } from '../gateway.ts'
import { request } from '../mcp/stage.ts'
import { PEOPLE } from './authority.ts'

/** A request as a client sends it, but for what proves who sends it. */
interface Request {
  readonly path: string
  readonly body: unknown
  readonly headers?: Record<string, string>
}

const chat = (more: Json = {}): Request => ({ path: '/v1/chat/completions', body: { ...CHAT, ...more } })
const mcp = (method: string, params: Json = {}, door = ''): Request => ({
  path: `/v1/mcp${door}`,
  ...request(method, { params }),
})
const call = (name: string, args: Json = {}, door = ''): Request =>
  mcp('tools/call', { name, arguments: args }, door)

/** All that is called, by a name that a failure shows. */
export const REQUESTS = {
  chat: chat(),
  'chat with a model that the check refuses': chat({ model: 'gpt-no' }),
  'chat with a model that nobody has': chat({ model: 'nobodys' }),
  'chat of no form': chat({ model: 7 }),
  list: mcp('tools/list'),
  'list at a door': mcp('tools/list', {}, '/files'),
  'list at the other door': mcp('tools/list', {}, '/notes'),
  'list at no door': mcp('tools/list', {}, '/nothing'),
  read: call('files.read'),
  'read at the door': call('read', {}, '/files'),
  write: call('files.write'),
  'write what does not fit': call('files.write', { text: 7 }),
  'a changed tool': call('files.changed'),
  'a tool that is not there': call('files.nothing'),
  'the same at the door': call('nothing', {}, '/files'),
  'a tool of no server': call('nowhere.tool'),
  'the only tool': call('notes'),
  'the other server': call('notes.read'),
  'no name at the door': call('', {}, '/files'),
  fetch: call('http.get', { url: 'https://elsewhere.invalid/' }),
  prompts: mcp('prompts/list'),
  prompt: mcp('prompts/get', { name: 'files.greet' }),
  resources: mcp('resources/list', {}, '/notes'),
  resource: mcp('resources/read', { uri: 'note:1' }),
  'resource at the door': mcp('resources/read', { uri: 'note:1' }, '/files'),
  level: mcp('logging/setLevel', { level: 'info' }, '/files'),
  completion: mcp(
    'completion/complete',
    { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'a', value: 'b' } },
    '/notes',
  ),
} satisfies Readonly<Record<string, Request>>

export type What = keyof typeof REQUESTS

/** How a call is proven: by the key of its caller, by another, or by a proof that is of no request. */
export type Proving = 'none' | 'own' | 'other' | 'spoilt'

/** One call, which can be sent again. */
export interface Call {
  readonly who: number
  readonly what: What
  readonly proof: Proving
  /** Whether it brings the access token of its caller, where that has one. */
  readonly token: boolean
}

const NAMES = Object.keys(REQUESTS) as What[]
/** What most calls are. */
const FREQUENT: readonly What[] = [
  ...(['chat', 'chat', 'chat with a model that the check refuses'] as const),
  ...(['list', 'list at a door', 'read', 'write', 'the other server'] as const),
]

export const anyCall: fc.Arbitrary<Call> = fc.record({
  who: fc.nat(PEOPLE - 1),
  what: fc.oneof(fc.constantFrom(...NAMES), fc.constantFrom(...FREQUENT)),
  proof: fc.constantFrom<Proving[]>(
    'none',
    'none',
    'none',
    'none',
    'own',
    'own',
    'own',
    'own',
    'other',
    'spoilt',
  ),
  token: fc.boolean(),
})
