import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { SERVER_PATHS } from '../../load/mcp-messages.ts'
import { freePort, listening, type Peer, pythonPackage } from './peer.ts'

const ADMIN = 'admin@example.com'
/** The time from listening to serving. ms. */
const PATIENCE_MS = 60_000

/** ContextForge (Python), from the package `mcp-contextforge-gateway`, in front of the older MCP server. */
export const CONTEXTFORGE: Peer = {
  name: 'ContextForge',
  what: 'MCP over plain HTTP, a token for all, SQLite, limits off; --workers 1',
  serves: 'mcp',
  version: (installed) =>
    installed === undefined ? null : pythonPackage(`${installed}/contextforge`, 'mcp-contextforge-gateway'),
  prepare: async ({ directory, upstreamPort, installed = '' }) => {
    const port = await freePort()
    const bin = join(installed, 'contextforge/bin')
    const jwtSecret = randomBytes(32).toString('hex')
    const token = tokenOf(join(bin, 'python'), jwtSecret)
    return {
      start: {
        name: 'contextforge',
        command: join(bin, 'mcpgateway'),
        args: ['mcpgateway.main:app', '--host', '127.0.0.1', '--port', String(port), '--workers', '1'],
        env: { ...environment(directory, port, jwtSecret) },
        ready: async (child) => {
          await listening(port, child)
          await register(port, token, upstreamPort)
          return port
        },
      },
      headers: [`authorization: Bearer ${token}`],
      mcp: { path: '/mcp/', tool: 'bench-echo' },
    }
  },
}

const environment = (directory: string, port: number, jwtSecret: string) => ({
  HOST: '127.0.0.1',
  PORT: String(port),
  DATABASE_URL: `sqlite:///${join(directory, 'contextforge.db')}`,
  JWT_SECRET_KEY: jwtSecret,
  AUTH_ENCRYPTION_SECRET: randomBytes(32).toString('hex'),
  PLATFORM_ADMIN_EMAIL: ADMIN,
  PLATFORM_ADMIN_PASSWORD: `Bench-${randomBytes(9).toString('hex')}!`,
  ADMIN_REQUIRE_PASSWORD_CHANGE_ON_BOOTSTRAP: 'false',
  // The upstream is on this machine.
  SSRF_ALLOW_LOCALHOST: 'true',
  SSRF_ALLOW_PRIVATE_NETWORKS: 'true',
  // They would let 100 calls a minute pass.
  RATE_LIMITING_ENABLED: 'false',
  TOOL_RATE_LIMIT: '100000000',
  LOG_LEVEL: 'ERROR',
  HOME: directory,
})

/** Makes a token as its manual has it, by its own program. */
function tokenOf(python: string, secret: string): string {
  const args = ['--username', ADMIN, '--exp', '600', '--secret', secret, '--admin']
  const { stdout } = spawnSync(python, ['-m', 'mcpgateway.utils.create_jwt_token', ...args], {
    encoding: 'utf8',
    env: { ...process.env, JWT_SECRET_KEY: secret },
  })
  return stdout.trim().split('\n').at(-1) ?? ''
}

/** Puts the MCP server behind it. Answers 4xx and 5xx until it is up. */
async function register(port: number, token: string, upstreamPort: number): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  const url = `http://127.0.0.1:${upstreamPort}${SERVER_PATHS.legacy}`
  for (;;) {
    const { ok, status } = await fetch(`http://127.0.0.1:${port}/gateways`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'bench', url, transport: 'STREAMABLEHTTP' }),
    })
    if (ok) return
    if (performance.now() > deadline) throw new Error(`ContextForge took no MCP server: ${status}`)
    await pause(500)
  }
}
