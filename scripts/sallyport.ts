#!/usr/bin/env node
import '../proxy/boot/no-debugger.ts'
import { refuseUnsafeRuntime } from '../proxy/boot/runtime-check.ts'
import { commandLine, type VerbRow } from './command-line.ts'

const VERBS: Readonly<Record<string, VerbRow>> = {
  start: { summary: 'start the gateway', load: async () => ({ verb: { run: start } }) },
  demo: {
    summary: 'show the main job with a mock provider, from a checkout',
    load: () => import('./verbs/demo.ts'),
  },
  cluster: {
    summary: 'start several gateways on PostgreSQL behind HAProxy, from a checkout',
    load: () => import('./verbs/cluster.ts'),
  },
  'check-config': {
    summary: 'check the operators’ files without starting',
    load: () => import('./verbs/check-config.ts'),
  },
  certs: { summary: 'make the CA and the server certificate', load: () => import('./verbs/certs.ts') },
  'ca-export': {
    summary: 'print the CA certificate for clients',
    load: () => import('./verbs/ca-export.ts'),
  },
  certificate: {
    summary: 'show by which certificates somebody can call, and end one',
    load: () => import('./verbs/certificate.ts'),
  },
  ca: { summary: 'show which CAs are trusted, and for whom', load: () => import('./verbs/ca.ts') },
  'admin-secret': {
    summary: 'set a new operator secret and print it once',
    load: () => import('./verbs/admin-secret.ts'),
  },
  secret: {
    summary: 'disable the operator secret, or enable it again',
    load: () => import('./verbs/secret.ts'),
  },
  operator: {
    summary: 'manage operators, and confirm what needs two people',
    load: () => import('./verbs/operator.ts'),
  },
  agent: {
    summary: 'enroll an agent with a certificate of the gateway’s own CA',
    load: () => import('./verbs/agent.ts'),
  },
  enroll: {
    summary: 'enroll an agent over the network: byoca, spiffe or mint',
    load: () => import('./verbs/enroll.ts'),
  },
  mcp: {
    summary: 'put MCP servers behind the gateway, and approve their tools',
    load: () => import('./verbs/mcp.ts'),
  },
  providers: {
    summary: 'show the providers of models, and try one',
    load: () => import('./verbs/providers.ts'),
  },
  sets: { summary: 'name sets of capabilities', load: () => import('./verbs/sets.ts') },
  'what-if': {
    summary: 'say, gate by gate, if a call would be let through now',
    load: () => import('./verbs/what-if.ts'),
  },
  rehearse: {
    summary: 'show what a change would have done to recent calls',
    load: () => import('./verbs/rehearse.ts'),
  },
  usage: {
    summary: 'show which capabilities a principal has used, and which not',
    load: () => import('./verbs/usage.ts'),
  },
  suggest: {
    summary: 'print the smallest set that a principal needs, as a rehearsal',
    load: () => import('./verbs/suggest.ts'),
  },
  connect: {
    summary: 'the sidecar: plain loopback HTTP in, mTLS and DPoP out',
    load: () => import('./verbs/connect.ts'),
  },
  renew: {
    summary: 'renew the certificate of an identity before it ends',
    load: () => import('./verbs/renew.ts'),
  },
  env: { summary: 'print the settings for common clients', load: () => import('./verbs/env.ts') },
  'rotate-signing-key': {
    summary: 'sign access tokens with a new key',
    load: () => import('./verbs/rotate-signing-key.ts'),
  },
  'rotate-passphrase': {
    summary: 'seal every key with a new passphrase',
    load: () => import('./verbs/rotate-passphrase.ts'),
  },
  'rotate-audit-key': {
    summary: 'sign checkpoints of the ledger with a new key',
    load: () => import('./verbs/rotate-audit-key.ts'),
  },
  witness: {
    summary: 'cosign checkpoints on another machine',
    load: () => import('./verbs/witness.ts'),
  },
  receipt: {
    summary: 'fetch the proof of one call, for its caller',
    load: () => import('./verbs/receipt.ts'),
  },
  evidence: {
    summary: 'pack the evidence of a period for an auditor',
    load: () => import('./verbs/evidence.ts'),
  },
  verify: {
    summary: 'verify the audit ledger offline, and every decision in it',
    load: () => import('./verbs/verify.ts'),
  },
  'verify-audit': { summary: 'the former name of verify', load: () => import('./verbs/verify.ts') },
  health: {
    summary: 'tell whether the gateway of this machine is ready',
    load: () => import('./verbs/health.ts'),
  },
  migrate: {
    summary: 'bring a database up to date, or show what it lacks',
    load: () => import('./verbs/migrate.ts'),
  },
  'copy-database': {
    summary: 'move a deployment from SQLite to PostgreSQL',
    load: () => import('./verbs/copy-database.ts'),
  },
  'export-audit': {
    summary: 'write the audit ledger as NDJSON',
    load: () => import('./verbs/export-audit.ts'),
  },
}

// Before a verb is loaded: native modules crash on a Node that is too old before any message.
process.exitCode = await commandLine(VERBS, process.argv.slice(2), () => refuseUnsafeRuntime(process))

/** Starts the gateway as `make start` does; it reads --help from the arguments of the process itself. */
async function start(): Promise<number> {
  await import('../proxy/main.ts')
  return 0
}
