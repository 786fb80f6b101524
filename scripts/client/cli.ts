#!/usr/bin/env node
// The command `sallyport` of the package `sallyport-client`: the verbs that need no gateway on this machine.
import type { VerbRow } from '../command-line.ts'
import { refuseOldNode } from './needed-node.ts'

const VERBS: Readonly<Record<string, VerbRow>> = {
  enroll: {
    summary: 'enroll an agent over the network: byoca, spiffe or mint',
    load: () => import('../verbs/enroll.ts'),
  },
  connect: {
    summary: 'the sidecar: plain loopback HTTP in, mTLS and DPoP out',
    load: () => import('../verbs/connect.ts'),
  },
  renew: {
    summary: 'renew the certificate of an identity before it ends',
    load: () => import('../verbs/renew.ts'),
  },
  receipt: {
    summary: 'fetch the proof of one call, for its caller',
    load: () => import('../verbs/receipt.ts'),
  },
  env: { summary: 'print the settings for common clients', load: () => import('../verbs/env.ts') },
}

process.exitCode = await main()

async function main(): Promise<number> {
  try {
    refuseOldNode(process.versions.node)
  } catch (error) {
    process.stderr.write(`sallyport: ${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  }
  const { commandLine } = await import('../command-line.ts')
  return commandLine(VERBS, process.argv.slice(2))
}
