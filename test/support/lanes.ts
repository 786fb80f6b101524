import { readFileSync } from 'node:fs'

/**
 * The long lane (`make test-long`): tests of more than some 15 s on a quiet machine, tests that need the programs of
 * others, and whole sweeps. `make test` runs the others; `.ci/run` runs both lanes. A file or folder by the start of
 * its path, and the reason. Held by test/lanes.test.ts.
 */
export const LONG: Readonly<Record<string, string>> = {
  'test/cluster/': 'several gateways and a PostgreSQL that is killed, paused and cut off',
  'test/db/postgres/round-trips': 'it listens to five gateways for ten seconds',
  'test/proxy/archive/trimmed': 'a gateway that is stopped and archived between its starts',
  'test/proxy/archive/year': 'days of calls, one after the other',
  'test/attacks/trusted-cas': 'a gateway for each of many CAs that are attached',
  ...because('a browser or a program of others', [
    'test/attacks/stored-scripts',
    'test/proxy/dashboard/activity-browser',
    'test/proxy/dashboard/browser',
    'test/proxy/dashboard/limits-browser',
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
  ...because('gateways are killed again and again', [
    'test/attacks/crash',
    'test/proxy/archive/killed',
    'test/proxy/export/killed',
    'test/proxy/people/killed',
    'test/proxy/dashboard/setup/crash',
  ]),
  ...because('every fault, edit or climb, one after the other', [
    'test/attacks/ledger-faults',
    'test/db/sqlite/ledger/sweep',
    'test/proxy/admin/authority/rotation',
    'test/proxy/boot/rotate-passphrase',
    'test/scripts/verifying/forgeries',
    'test/scripts/verifying/stamps',
    'test/scripts/verifying/stored-sweep',
    'test/scripts/verifying/sweep',
    'test/scripts/verifying/zips',
    'test/attacks/climbs',
    'test/docs/verify-py',
  ]),
  ...because('every kind of request or history many times', [
    'test/attacks/asked-again',
    'test/attacks/audit-loop',
    'test/attacks/budget',
    'test/attacks/loop',
    'test/attacks/two-people',
    'test/proxy/content/false-alarms',
    'test/siege/',
  ]),
  ...because('it runs other tests once more', ['test/proxy/tls/on-streams']),
  ...because('a process for each of many starts or commands', [
    'test/attacks/boot',
    'test/attacks/history',
    'test/scripts/client-package',
    'test/scripts/client/renewal',
    'test/scripts/demo/',
    'test/scripts/operators/operator',
    'test/scripts/verbs/commands',
  ]),
  ...because('whole packs of evidence and trees, each verified by every verifier', [
    'test/proxy/proofs/evidence',
    'test/proxy/proofs/stamps',
  ]),
}

/** Sweeps of the long lane that are in the short lane too, by a fixed tenth (`BY_A_TENTH`). */
const SWEEPS = ['test/scripts/verifying/sweep', 'test/proxy/archive/killed']

/** The variable that names the lane of a run. */
export const LANE = 'TEST_LANE'
/** True where a sweep of both lanes tries a tenth of its cases, always the same ones. */
export const BY_A_TENTH = process.env[LANE] === 'short'

function because(reason: string, places: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(places.map((place) => [place, reason]))
}

const beginsWith = (file: string, places: readonly string[]): boolean =>
  places.some((place) => file.startsWith(place))

/** Tells whether a test, by its path from the root, is in the long lane. */
export const isLong = (file: string): boolean => beginsWith(file, Object.keys(LONG))

/** Tells whether a test is in the short lane. */
export const isShort = (file: string): boolean => !isLong(file) || beginsWith(file, SWEEPS)

/** The calls of a test that measures time, work or memory, or the code that runs meanwhile. */
const MEASURED =
  /(\b(holdOf|heldFor|shortest|walkOf|performance\.now|(threadC|c)puUsage|memoryUsage)|\.held)\(/
/** Those of them that what ran before in the same process may fail: its memory, and code that is warm. */
const OF_PROCESS = /(\b(holdOf|heldFor|shortest|walkOf|cpuUsage|memoryUsage)|\.held)\(/

/**
 * They look at a clock, and what runs alongside cannot fail them: they hold the loop for a while themselves, wait for a
 * least time, or until ten seconds and more have passed.
 */
export const PATIENT: readonly string[] = [
  'test/db/postgres/faults.test.ts',
  'test/db/postgres/kept-lookups.test.ts',
  'test/db/postgres/reading.test.ts',
  'test/plugins/turns.test.ts',
  'test/proxy/admin/principals/renewal.test.ts',
  'test/proxy/dashboard/activity.test.ts',
  'test/proxy/dashboard/followers.test.ts',
  'test/proxy/llm/credentials.test.ts',
  'test/proxy/mcp/upstream/resume.test.ts',
  'test/proxy/tls/handshakes.test.ts',
  'test/proxy/tls/inbound.test.ts',
]

/** Tells whether a test looks at a clock, at work or at memory. */
export const looksAtClock = (file: string): boolean => MEASURED.test(readFileSync(file, 'utf8'))

/** Tells whether a test measures: what runs alongside may fail it. */
export const measures = (file: string): boolean => !PATIENT.includes(file) && looksAtClock(file)

/** The test that holds every manner of sending to 20 ms of the loop: it measures with nothing alongside. */
export const ALONE: readonly string[] = ['test/attacks/loop.test.ts']

/**
 * Code that changes or looks at the whole process: such a file has its own process. The others of a run have one in
 * turn (in-turn/worker.ts), and leave it as they find it.
 */
const WHOLE_PROCESS =
  /\bprocess\.(?!execPath|env\b|hrtime|cwd|getuid|platform|version|arch|nextTick|pid|stderr|ts')|\bprocess\.env(?:\.\w+|\[[^\]]+\]|) =[^=]|\bdelete process\.env|\(process\.env,|\bimport\.meta\.main\b|\bglobalThis\.\w+ =[^=]|\bsetDefaultCACertificates\b|\bglobalAgent\b|\/proc\/self\/(task|fd|status|net)|^t\.setTimeout\((?![\d_]+\))|\bgc\(|\.stop\('(?:fast|immediate)'\)/m

/** They have a process of their own too, and why. A file or folder by the start of its path. */
export const OWN_PROCESS: Readonly<Record<string, string>> = {
  'test/clients/': 'a helper of theirs imports tap',
  'test/cluster/': 'they stop and kill the PostgreSQL server of their process',
}

/** Tells whether a test has a process of its own in a run. */
export function needsProcess(file: string): boolean {
  const text = readFileSync(file, 'utf8')
  return beginsWith(file, Object.keys(OWN_PROCESS)) || WHOLE_PROCESS.test(text) || OF_PROCESS.test(text)
}

/** The time that a file may take, as it says itself; else as given. ms. */
export function timeoutOf(file: string, otherwise: number): number {
  const [, asked] = /^t\.setTimeout\(([\d_]+)\)/m.exec(readFileSync(file, 'utf8')) ?? []
  return asked === undefined ? otherwise : Number(asked.replaceAll('_', ''))
}
