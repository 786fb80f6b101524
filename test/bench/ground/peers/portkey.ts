import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePort, listening, type Peer } from './peer.ts'

const PACKAGE = 'portkey/node_modules/@portkey-ai/gateway'

/** Portkey's gateway (Node), from the package `@portkey-ai/gateway`. Each request says where it goes. */
export const PORTKEY: Peer = {
  name: 'Portkey',
  what: 'plain HTTP, no key of its own, nothing recorded; --headless, NODE_ENV=production',
  serves: 'llm',
  version: (installed) => (installed === undefined ? null : versionIn(join(installed, PACKAGE))),
  prepare: async ({ upstreamPort, installed = '' }) => {
    const port = await freePort()
    return {
      start: {
        name: 'portkey',
        command: process.execPath,
        args: [join(installed, PACKAGE, 'build/start-server.js'), `--port=${port}`, '--headless'],
        env: { NODE_ENV: 'production' },
        ready: (child) => listening(port, child),
      },
      headers: [
        'x-portkey-provider: openai',
        `x-portkey-custom-host: http://127.0.0.1:${upstreamPort}/v1`,
        'authorization: Bearer sk-bench',
      ],
    }
  },
}

function versionIn(directory: string): string | null {
  try {
    // A package of npm has one.
    const { version } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as {
      version: string
    }
    return version
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}
