import type { DemoGateway } from './gateway.ts'

/** Returns lines to paste into another terminal while the gateway of the demo runs. */
export function curlLines({ url, directory, adminSecret }: DemoGateway): string {
  const as = (name: string): string =>
    `--cacert ${name}/org-ca.crt --cert ${name}/agent.crt --key ${name}/agent.key`
  const chat = (name: string, more: string, body: object): string =>
    `  curl ${more}${as(name)} \\
    ${url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '${JSON.stringify({ model: 'gpt-demo', messages: [{ role: 'user', content: 'hello' }], ...body })}'`
  const ask = (method: string, params: object): string =>
    `  curl ${as('writer')} \\
    ${url}/v1/mcp -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \\
    -d '${JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })}'`
  return `
The gateway stays until Ctrl-C. In another terminal:

  cd ${directory}

  # JSON, then streamed
${chat('writer', '', {})}

${chat('writer', '-N ', { stream: true })}

  # tools: what may be called is listed; what may not is refused
${ask('tools/list', {})}

${ask('tools/call', { name: 'notes.delete_note' })}

  # the guest is refused, until you grant it llm.chat
${chat('guest', '', {})}

  curl --cacert writer/org-ca.crt -X PATCH ${url}/v1/admin/agents/acme::guest/capabilities \\
    -H 'X-Admin-Secret: ${adminSecret}' -H 'content-type: application/json' \\
    -d '{"capabilities": ["llm.chat"]}'
`
}
