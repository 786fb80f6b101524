import t from 'tap'
import { startFixture } from '../support/mcp/fixture.ts'
import { type Revision, runSuite, scoredScenarios } from '../support/mcp/suite.ts'

// The ground that every comparison through the gateway stands on.
for (const requirements of ['2025-11-25', '2026-07-28'] satisfies Revision[]) {
  await t.test(
    `docs/threats.md#suites the fixture passes every scored scenario of ${requirements}`,
    async (t) => {
      const { url, requests } = await startFixture(t)
      const verdicts = await runSuite({ url, requirements })
      for (const scenario of await scoredScenarios(requirements)) {
        const verdict = verdicts.get(scenario)
        t.same(verdict?.faults, [], scenario)
        t.ok(verdict && verdict.passed > 0, `${scenario}: something was checked`)
      }
      const methods = new Set(requests.map(({ method }) => method))
      t.ok(methods.has('tools/call') && methods.has('tools/list'), 'it saw what the suite sent')
    },
  )
}
