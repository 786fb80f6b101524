#!/usr/bin/env node
// The command `sallyport` of the package `sallyport-client`: the verbs that need no gateway on this machine.
import type { VerbRow } from '../command-line.ts'
import { refuseOldNode } from './needed-node.ts'

const VERBS: Readonly<Record<string, VerbRow>> = {
  enroll: ['enroll an agent over the network: byoca, spiffe or mint', () => import('../verbs/enroll.ts')],
  connect: ['the sidecar: plain loopback HTTP in, mTLS and DPoP out', () => import('../verbs/connect.ts')],
  renew: ['renew the certificate of an identity before it ends', () => import('../verbs/renew.ts')],
  receipt: ['fetch the proof of one call, for its caller', () => import('../verbs/receipt.ts')],
  env: ['print the settings for common clients', () => import('../verbs/env.ts')],
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
