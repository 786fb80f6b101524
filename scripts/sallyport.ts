#!/usr/bin/env node
import { refuseUnsafeRuntime } from '../proxy/runtime-check.ts'

/** A verb of the command line. Its module runs as it is imported, on the arguments after the verb. */
interface Verb {
  readonly says: string
  readonly run: () => Promise<unknown>
}

const VERBS: Readonly<Record<string, Verb>> = {
  start: { says: 'start the gateway', run: () => import('../proxy/main.ts') },
  demo: {
    says: 'show the main job with a mock provider, from a checkout',
    run: async () => {
      // What it shows the calls with is no dependency of the package.
      if (import.meta.filename.endsWith('.js')) throw new Error('demo runs from a checkout only: make demo')
      await import('./verbs/demo.ts')
    },
  },
  'check-config': {
    says: 'check the operators’ files without starting',
    run: async () => {
      const { checkConfigVerb } = await import('./verbs/check-config.ts')
      await checkConfigVerb()
    },
  },
  certs: { says: 'make the CA and the server certificate', run: () => import('./verbs/certs.ts') },
  'ca-export': { says: 'print the CA certificate for clients', run: () => import('./verbs/ca-export.ts') },
  'admin-secret': {
    says: 'set a new operator secret and print it once',
    run: () => import('./verbs/admin-secret.ts'),
  },
  agent: {
    says: 'enroll an agent beside the gateway on this machine',
    run: () => import('./verbs/agent.ts'),
  },
  enroll: {
    says: 'enroll an agent over the network: byoca, spiffe or mint',
    run: () => import('./verbs/enroll.ts'),
  },
  mcp: {
    says: 'put MCP servers behind the gateway, and approve their tools',
    run: () => import('./verbs/mcp.ts'),
  },
  connect: {
    says: 'the sidecar: plain loopback HTTP in, mTLS and DPoP out',
    run: () => import('./verbs/connect.ts'),
  },
  env: { says: 'print what to tell the common clients', run: () => import('./verbs/env.ts') },
  'rotate-signing-key': {
    says: 'sign access tokens with a new key',
    run: () => import('./verbs/rotate-signing-key.ts'),
  },
  'verify-audit': { says: 'verify the audit ledger offline', run: () => import('./verbs/verify-audit.ts') },
  'export-audit': { says: 'write the audit ledger as NDJSON', run: () => import('./verbs/export-audit.ts') },
}

const HELP = `usage: sallyport VERB [options]

${Object.entries(VERBS)
  .map(([name, { says }]) => `  ${name.padEnd(20)}${says}`)
  .join('\n')}

  sallyport VERB --help says more about one; --version prints the version.
`

const WRONG_USAGE = 2

process.exitCode = await main(process.argv.slice(2))

async function main([name, ...args]: readonly string[]): Promise<number | undefined> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    ;(name === undefined ? process.stderr : process.stdout).write(HELP)
    return name === undefined ? WRONG_USAGE : 0
  }
  if (name === '--version' || name === '-V') {
    const { VERSION } = await import('../proxy/version.ts')
    process.stdout.write(`${VERSION}\n`)
    return 0
  }
  const verb = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined
  return verb ? run(verb, args) : unknownVerb(name)
}

async function run(verb: Verb, args: readonly string[]): Promise<number | undefined> {
  try {
    // Also for verbs that do not ask: native modules crash on a Node that is too old before anything can be said.
    refuseUnsafeRuntime(process)
    process.argv.splice(2, process.argv.length, ...args)
    await verb.run()
  } catch (error) {
    process.stderr.write(`sallyport: ${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  }
  // What the verb itself has set.
  return Number(process.exitCode ?? 0)
}

async function unknownVerb(name: string): Promise<number> {
  const { nearestName } = await import('../plugins/operator-files/nearest-name.ts')
  process.stderr.write(
    `sallyport: ${JSON.stringify(name)} is no verb: did you mean ${nearestName(name, Object.keys(VERBS))}? --help lists them\n`,
  )
  return WRONG_USAGE
}
