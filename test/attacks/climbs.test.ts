import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../plugins/operators/capabilities.ts'
import { OPERATIONS } from '../../proxy/admin/http/operations.ts'
import { requestFor } from '../support/certs/certified.ts'
import { climbs } from '../support/climbs/inputs.ts'
import { climbStage } from '../support/climbs/stage.ts'

// A certificate is tried for each that was got hold of.
t.setTimeout(300_000)

/** Operations that another form of the same route serves, and those that pages alone make. */
const OF_ANOTHER_ROUTE = /InForm$|WithProgress$|AsCsv$|^getAuditHead$/

/** Operations that nobody can succeed with here, and why. */
const NEVER: Readonly<Record<string, string>> = {
  confirmProposal: 'nothing waits',
  declineProposal: 'nothing waits',
  getProposal: 'nothing waits',
  endGrant: 'nobody has allowed a client anything',
  endUpstreamAccount: 'nobody has an account elsewhere',
  rewindExport: 'no file names a sink',
  getApproval: 'no call waits',
  approveCall: 'no call waits',
  declineCall: 'no call waits',
  endSession: 'nobody has a browser',
  endPreviousBundles: 'no bundle is in its grace',
  adoptAgentDpopKey: 'no key has signed a call',
  adoptUserDpopKey: 'no key has signed a call',
  adoptWorkloadDpopKey: 'no key has signed a call',
  enableSecret: 'on the machine alone',
  runArchive: 'no file names a folder',
  confirmSegment: 'nothing is archived',
  forgetSegment: 'nothing is archived',
  restoreSegment: 'nothing is archived',
  approveMcpServer: 'no server says anything new',
  finishCaRotation: 'its own certificate is of the old CA: an owner alone ends an operator’s',
}

const documented = new Map(
  readFileSync(join(import.meta.dirname, '../../docs/operators.md'), 'utf8')
    .split('<a id="climbs"></a>')[1]
    ?.split('\n## ')[0]
    ?.split('\n')
    .flatMap((line) => {
      const [, capability, becomes] = /^\| `(admin\.\w+)` \| ([^|]+) \|/.exec(line) ?? []
      const words = becomes?.matchAll(/\*\*(\w+)\*\*/g) ?? []
      return capability ? [[capability, [...words].map(([, word = '']) => word).toSorted()] as const] : []
    }),
)

await t.test('docs/operators.md#climbs says of each capability what it can become', (t) => {
  t.strictSame([...documented.keys()], [...ADMIN_CAPABILITIES])
  t.end()
})

await t.test(
  'H7 every operation of administration, with each single capability, makes of its holder what docs/operators.md#climbs says, and no more',
  async (t) => {
    const stage = await climbStage(t)
    const request = await requestFor(t)
    const operations = Object.values(OPERATIONS)
      .flatMap((kind) => Object.values(kind))
      .filter(({ name }) => !OF_ANOTHER_ROUTE.test(name))
    const succeeded = new Set<string>()
    for (const capability of ADMIN_CAPABILITIES) {
      const holder = await stage.holderOf(capability)
      t.strictSame(await holder.reached(), [], `${capability} before`)
      const became = new Map<string, string>()
      for (const { name } of operations) {
        const route = stage.routes.get(name)
        const tries = await climbs(name, { ...stage, ...holder, request })
        if (!route || !tries) {
          t.fail(`${name} is new: say in test/support/climbs/inputs.ts how its holder would climb by it`)
          continue
        }
        const statuses: number[] = []
        for (const tried of tries) statuses.push((await holder.ask(route, tried)).status)
        if (statuses.some((status) => status >= 500)) t.fail(`${capability} ${name}: ${statuses.join(', ')}`)
        if (statuses.every((status) => status >= 300)) continue
        succeeded.add(name)
        stage.spent()
        for (const what of await holder.reached()) became.set(what, became.get(what) ?? name)
      }
      const found = [...became.keys()].toSorted()
      t.strictSame(found, documented.get(capability), `${capability}: ${JSON.stringify([...became])}`)
    }
    const untried = operations.filter(({ name }) => !succeeded.has(name) && !Object.hasOwn(NEVER, name))
    t.strictSame(
      untried.map(({ name }) => name),
      [],
      'each was made by somebody, else nothing was tried',
    )
  },
)
