#!/usr/bin/env node
import '../proxy/boot/no-debugger.ts'
import { refuseUnsafeRuntime } from '../proxy/boot/runtime-check.ts'
import { commandLine, type VerbRow } from './command-line.ts'

const VERBS: Readonly<Record<string, VerbRow>> = {
  start: ['start the gateway', async () => ({ verb: { run: start } })],
  demo: ['show the main job with a mock provider, from a checkout', () => import('./verbs/checkout.ts')],
  cluster: [
    'start several gateways on PostgreSQL behind HAProxy, from a checkout',
    () => import('./verbs/checkout.ts'),
  ],
  'check-config': ['check the operators’ files without starting', () => import('./verbs/check-config.ts')],
  certs: ['make the CA and the server certificate', () => import('./verbs/certs.ts')],
  'ca-export': ['print the CA certificate for clients', () => import('./verbs/certs.ts')],
  certificate: [
    'show by which certificates somebody can call, and end one',
    () => import('./verbs/certificate.ts'),
  ],
  ca: ['show which CAs are trusted, and for whom', () => import('./verbs/ca.ts')],
  'admin-secret': ['set a new operator secret and print it once', () => import('./verbs/secret.ts')],
  secret: ['disable the operator secret, or enable it again', () => import('./verbs/secret.ts')],
  operator: ['manage operators, and confirm what needs two people', () => import('./verbs/operator.ts')],
  agent: ['enroll an agent with a certificate of the gateway’s own CA', () => import('./verbs/agent.ts')],
  enroll: ['enroll an agent over the network: byoca, spiffe or mint', () => import('./verbs/enroll.ts')],
  mcp: ['put MCP servers behind the gateway, and approve their tools', () => import('./verbs/mcp.ts')],
  providers: ['show the providers of models, and try one', () => import('./verbs/providers.ts')],
  costs: ['show what calls have cost, by who made them', () => import('./verbs/costs.ts')],
  prices: ['find the models that have no price', () => import('./verbs/costs.ts')],
  stop: ['stop calls at once', () => import('./verbs/stop.ts')],
  stops: ['show the stops of calls, and end one', () => import('./verbs/stops.ts')],
  approvals: ['approve or decline calls that wait for it', () => import('./verbs/approvals.ts')],
  accounts: ['show and end the accounts of principals at MCP servers', () => import('./verbs/accounts.ts')],
  grants: ['show and end what people have allowed clients', () => import('./verbs/grants.ts')],
  limits: ['limit calls by cost, tokens, calls and calls at once', () => import('./verbs/limits.ts')],
  sets: ['name sets of capabilities', () => import('./verbs/sets.ts')],
  translate: ['print what a model of another API would be told', () => import('./verbs/translate.ts')],
  'what-if': ['say, gate by gate, if a call would be let through now', () => import('./verbs/principal.ts')],
  rehearse: ['show what a change would have done to recent calls', () => import('./verbs/rehearse.ts')],
  usage: [
    'show which capabilities a principal has used, and which not',
    () => import('./verbs/principal.ts'),
  ],
  suggest: [
    'print the smallest set that a principal needs, as a rehearsal',
    () => import('./verbs/principal.ts'),
  ],
  connect: ['the sidecar: plain loopback HTTP in, mTLS and DPoP out', () => import('./verbs/connect.ts')],
  renew: ['renew the certificate of an identity before it ends', () => import('./verbs/renew.ts')],
  env: ['print the settings for common clients', () => import('./verbs/env.ts')],
  'rotate-signing-key': ['sign access tokens with a new key', () => import('./verbs/rotate-key.ts')],
  'rotate-passphrase': ['seal every key with a new passphrase', () => import('./verbs/rotate-passphrase.ts')],
  'rotate-audit-key': [
    'sign checkpoints of the ledger with a new key',
    () => import('./verbs/rotate-key.ts'),
  ],
  witness: ['cosign checkpoints on another machine', () => import('./verbs/witness.ts')],
  receipt: ['fetch the proof of one call, for its caller', () => import('./verbs/receipt.ts')],
  evidence: ['pack the evidence of a period for an auditor', () => import('./verbs/evidence.ts')],
  archive: ['move old rows of the ledger to files, and look after those', () => import('./verbs/archive.ts')],
  export: ['show the sinks that get rows, and send rows again', () => import('./verbs/export.ts')],
  tail: ['show the newest rows of the ledger, and follow them', () => import('./verbs/tail.ts')],
  verify: ['verify the audit ledger offline, and every decision in it', () => import('./verbs/verify.ts')],
  'verify-audit': ['the former name of verify', () => import('./verbs/verify.ts')],
  health: ['tell whether the gateway of this machine is ready', () => import('./verbs/health.ts')],
  migrate: ['bring a database up to date, or show what it lacks', () => import('./verbs/migrate.ts')],
  'copy-database': ['move a deployment from SQLite to PostgreSQL', () => import('./verbs/copy-database.ts')],
  'export-audit': ['write the audit ledger as NDJSON', () => import('./verbs/export-audit.ts')],
}

// Before a verb is loaded: native modules crash on a Node that is too old before any message.
process.exitCode = await commandLine(VERBS, process.argv.slice(2), () => refuseUnsafeRuntime(process))

/** Starts the gateway as `make start` does; it reads --help from the arguments of the process itself. */
async function start(): Promise<number> {
  await import('../proxy/main.ts')
  return 0
}
