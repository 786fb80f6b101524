import { escapeHiddenJson } from '../../proxy/visible.ts'
import { readIdentity } from '../client/identity/identity.ts'
import { settleNext } from '../client/renewal/files.ts'
import { keepRenewed } from '../client/renewal/keep-renewed.ts'
import { startSidecar } from '../client/sidecar.ts'
import { clientSession } from '../client/signing/session.ts'
import { commandOf, parsePort, SIDECAR_OPTIONS, verbOf } from '../command.ts'
import { ignoreOutputErrors, print, printNotice } from '../print.ts'

const GRACE_MS = 10_000

export const verb = verbOf({
  name: 'sallyport connect',
  make: 'make connect IDENTITY=DIR [PORT=8787]',
  about: `The sidecar: plain http://127.0.0.1 in, mutual TLS, access token and DPoP proof out, for clients that cannot present a
certificate (Codex), or sign (curl, Python). Streams pass event by event; a broken one is never ended cleanly.`,
  options: {
    identity: {
      type: 'string',
      value: 'DIR',
      needed: true,
      description: `the agent's files, as \`${commandOf('agent', 'agent')}\` writes them`,
    },
    ...SIDECAR_OPTIONS,
    host: {
      type: 'string',
      value: 'HOST',
      default: '127.0.0.1',
      description: `127.0.0.1, ::1 or localhost: nothing else, because whoever reaches the port
calls as the agent`,
    },
    'no-renew': {
      type: 'boolean',
      default: false,
      description: `do not renew the certificate: for an identity on several machines,
one of which renews it`,
    },
  },
  notes: `Port 0 picks one. Prints {"msg":"ready","url":…} on standard output when it takes calls. SIGTERM and SIGINT let running calls
end, 10 s at most; the same signal again ends it at once. Other users of this machine can reach the port too: run it where
there are none. It renews the agent's certificate before it expires, and uses a new one that somebody else puts in DIR.
\`${commandOf('env', 'env')}\` prints the settings for clients.`,
  run: async ({ identity: directory, port: wanted, host, gateway, 'no-renew': leave }) => {
    if (!directory)
      throw new Error(`name the identity: ${commandOf('connect IDENTITY=DIR', 'connect --identity DIR')}`)
    ignoreOutputErrors()
    const port = parsePort(wanted)
    if (!leave) await settleNext(directory)
    const identity = readIdentity(directory, gateway)
    const notice = (sentence: string): unknown => printNotice(sentence)
    const session = clientSession(identity, { directory, notice })
    const sidecar = await startSidecar(session, host, port).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE') throw error
      throw new Error(`another process listens on ${host}:${port}: take another port, e.g. PORT=${port + 1}`)
    })
    const renewing = new AbortController()
    if (!leave) void keepRenewed({ directory, url: gateway, notice, signal: renewing.signal })
    const { url } = sidecar
    const ready = { msg: 'ready', url, gateway: identity.url, agent_id: identity.agentId }
    print(escapeHiddenJson(JSON.stringify(ready)))
    printNotice(
      `${url} is ${identity.url} as ${identity.agentId ?? directory} (base URL: ${url}/v1, Anthropic: ${url})`,
    )
    let stopping = false
    const stop = (): void => {
      if (stopping) process.exit(0)
      stopping = true
      renewing.abort()
      void sidecar.close(GRACE_MS).then(() => session.close())
    }
    process.on('SIGTERM', stop)
    process.on('SIGINT', stop)
  },
})
