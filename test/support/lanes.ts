import { readFileSync } from 'node:fs'

/**
 * The long lane (`make test-long`): tests of more than some 15 s on a quiet machine, tests that need the programs of
 * others, and whole sweeps. `make test` runs the others; `.ci/run` runs both lanes. A file or folder by the start of
 * its path, and the reason. Held by test/lanes.test.ts.
 */
export const LONG: Readonly<Record<string, string>> = {
  'test/cluster/': 'several gateways and a PostgreSQL that is killed, paused and cut off',
  ...because('a browser or a program of others', [
    'test/attacks/stored-scripts',
    'test/proxy/dashboard/activity-browser',
    'test/proxy/dashboard/browser',
    'test/proxy/operators/browser',
    'test/clients/',
    'test/conformance/',
    'test/deploy/',
    'test/proxy/tls/behind-haproxy',
    'test/scripts/cluster/haproxy',
    'test/scripts/verbs/cluster',
  ]),
  ...because('it builds a program in Go', [
    'test/attacks/mcp/go-server',
    'test/proxy/proofs/go-',
    'test/scripts/verbs/witness-go',
  ]),
  ...because('gateways are killed again and again', ['test/attacks/crash']),
  ...because('every fault or every edit, one after the other', [
    'test/attacks/ledger-faults',
    'test/db/sqlite/ledger/sweep',
    'test/scripts/verifying/forgeries',
    'test/scripts/verifying/sweep',
  ]),
  ...because('every kind of request many times, to see what it holds up', [
    'test/attacks/asked-again',
    'test/attacks/audit-loop',
    'test/attacks/budget',
    'test/attacks/loop',
  ]),
  ...because('gateways are started one after the other as processes', [
    'test/attacks/boot',
    'test/attacks/history',
  ]),
  'test/proxy/proofs/evidence': 'whole packs of evidence, each verified by every verifier',
}

function because(reason: string, places: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(places.map((place) => [place, reason]))
}

const places = Object.keys(LONG)

/** Tells whether a test, by its path from the root, is in the long lane. */
export const isLong = (file: string): boolean => places.some((place) => file.startsWith(place))

/** What a test says that measures time, work or memory. */
const MEASURED = /\b(holdOf|heldFor|held|shortest|performance\.now|(threadC|c)puUsage|memoryUsage)\(/

/** Tells whether a test measures: what runs alongside may fail it. */
export const measures = (file: string): boolean => MEASURED.test(readFileSync(file, 'utf8'))
