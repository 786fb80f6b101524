import { writeFile } from 'node:fs/promises'
import { Agent } from 'node:https'
import { join } from 'node:path'
import type { Test } from 'tap'
import { requestFor } from '../certs/certified.ts'
import { ADMIN_SECRET, type Answered, agentOf, ask, type Identity, type Json } from '../gateway.ts'
import { type RawMcp, rawMcp } from '../mcp/raw-upstream.ts'
import { legacyWith, request, tool } from '../mcp/stage.ts'
import { environment, type Process, startProcess } from '../process.ts'
import { completion, testUpstream } from '../upstream.ts'

/** A gateway in a process of its own, which may be killed and started again, and all that calls it. */
export interface World {
  readonly data: string
  readonly server: RawMcp
  /** The descriptions of the MCP server's tools: what it lists from now on. */
  readonly tools: Map<string, string>
  readonly admin: (method: string, path: string, body?: unknown) => Promise<Answered>
  readonly chat: (who: Identity, body?: unknown) => Promise<Answered>
  readonly rpc: (who: Identity, method: string, params: Json, at?: string) => Promise<Answered>
  /** Puts other options of proofs in force, or makes the next start do so. */
  readonly dpopMode: (mode: string, noDowngrade: boolean) => Promise<void>
  readonly restart: (signal: 'SIGKILL' | 'SIGTERM') => Promise<void>
  readonly newUser: (name: string) => Promise<Identity>
}

export async function world(t: Test): Promise<World> {
  const directory = t.testdir({})
  const upstream = await testUpstream(t)
  upstream.answer = completion
  const tools = new Map([
    ['read', 'Reads.'],
    ['write', 'Writes.'],
  ])
  const listed = () => [...tools].map(([name, description]) => tool(name, { description }))
  const server = await rawMcp(t, (res, told) => legacyWith(listed())(res, told))
  const env = { ...(await environment(directory, upstream.url)), MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' }
  let gateway: Process
  let [url, ca] = ['', '']
  const start = async (): Promise<void> => {
    gateway = startProcess(t, env)
    url = await gateway.ready
    ca = (await ask(`${url}/pki/ca.crt`, 'GET', { agent: new Agent({ rejectUnauthorized: false }) })).text
  }
  await start()
  const call = async (
    who: Identity | null,
    path: string,
    asked: Parameters<typeof ask>[2],
    method = 'POST',
  ) => {
    const agent = agentOf(ca, who)
    const answer = await ask(url + path, method, { ...asked, agent })
    agent.destroy()
    return answer
  }
  const admin: World['admin'] = (method, path, body) =>
    call(null, path, { body, headers: { 'x-admin-secret': ADMIN_SECRET } }, method)
  return {
    data: join(directory, 'data'),
    server,
    tools,
    admin,
    chat: (who, body = { model: 'gpt-test', messages: [] }) => call(who, '/v1/chat/completions', { body }),
    rpc: (who, method, params, at = '') => call(who, `/v1/mcp${at}`, request(method, { params })),
    dpopMode: async (mode, noDowngrade) => {
      const text = `plugin: dpop\negress_dpop_mode: ${mode}\nno_downgrade: ${noDowngrade}\n`
      await writeFile(join(directory, 'config', '20-dpop.yaml'), text)
      gateway.child.kill('SIGHUP')
    },
    restart: async (signal) => {
      gateway.child.kill(signal)
      await gateway.ended
      await start()
    },
    newUser: async (name) => {
      const { json } = await admin('POST', '/v1/admin/users', { user_name: name, capabilities: ['llm.chat'] })
      const { csr, key } = await requestFor(t)
      const path = `/v1/admin/users/${json.principal_id}/certificate`
      const certified = await admin('POST', path, { csr_pem: csr })
      return { id: json.principal_id, cert: certified.json.cert_chain_pem, key }
    },
  }
}
