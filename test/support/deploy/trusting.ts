import { trustExtraCas } from '../../../proxy/boot/extra-cas.ts'
import { egressAgent } from '../../../proxy/egress/agent.ts'

// What a process with this environment reaches, by the agent of MCP servers, of providers of identities and
// of time-stamping: a status, or the code of the failure.
const [origin = ''] = process.argv.slice(2)
const faults = trustExtraCas(process.env, Date.now())
const agent = egressAgent({ allowPrivate: true, connectMs: 10_000, answerMs: 10_000, keepAlive: false })
const reached = await agent.request({ origin, path: '/health', method: 'GET' }).then(
  ({ statusCode, body }) => body.dump().then(() => statusCode),
  (error) => error.code,
)
await agent.destroy()
process.stdout.write(JSON.stringify({ reached, faults }))
