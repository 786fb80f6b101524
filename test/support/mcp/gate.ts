import type { Test } from 'tap'
import type { Identity, Json } from '../gateway.ts'
import { type Fixture, startFixture } from './fixture.ts'
import { asClient } from './mtls.ts'
import { mcpStage, type Stage } from './stage.ts'
import { type Revision, runSuite, type Verdict } from './suite.ts'

export const REVISIONS = ['2025-11-25', '2026-07-28'] as const satisfies readonly Revision[]

/** What an agent needs for everything the fixture has. */
export const ALL = ['mcp.tools.list', 'everything.use', 'mcp.prompts.get', 'mcp.resources.read']

type Verdicts = ReadonlyMap<string, Verdict>

/** The fixture, once for itself and once behind a gateway as the resource `everything`. */
export interface Gate {
  readonly stage: Stage
  readonly behind: Fixture
  /** Bound to `everything`. */
  readonly bot: Identity
  /** The requests with which the gateway read it when it was registered. */
  readonly read: number
  /** Runs the suite against a fixture that nothing stands in front of. */
  readonly direct: () => Promise<Verdicts>
  /** Runs it over mutual TLS as `bot` at a door of the gateway. */
  readonly through: (door: '/v1/mcp' | '/v1/mcp/everything') => Promise<Verdicts>
}

/**
 * A gate in front of a fixture of the revision's own era, and the agent `bot` with those capabilities; all
 * ends with the test.
 */
export async function gate(t: Test, requirements: Revision, capabilities: readonly string[]): Promise<Gate> {
  const eras = requirements === '2025-11-25' ? 'legacy' : 'both'
  const stage = await mcpStage(t)
  const [alone, behind] = [await startFixture(t, { eras }), await startFixture(t, { eras })]
  const everything = await stage.register('everything', behind, { required_capability: 'everything.use' })
  const bot = await stage.enroll('bot', capabilities)
  await stage.bind(bot, everything)
  const client = await asClient(t, stage.ca, bot)
  return {
    stage,
    behind,
    bot,
    read: behind.requests.length,
    direct: () => runSuite({ url: alone.url, requirements }),
    through: (door) => runSuite({ url: stage.url + door, requirements, ...client }),
  }
}

/** By scenario and check, the statuses of each side where they are not the same: `[direct, through]`. */
export function difference(direct: Verdicts, through: Verdicts): Json {
  const found: Record<string, Record<string, Json>> = {}
  for (const scenario of new Set([...direct.keys(), ...through.keys()])) {
    const [ours, theirs] = [through.get(scenario)?.checks ?? {}, direct.get(scenario)?.checks ?? {}]
    const other = [...new Set([...Object.keys(theirs), ...Object.keys(ours)])]
      .map((id) => [id, [theirs[id] ?? [], ours[id] ?? []]] as const)
      .filter(([, [a, b]]) => String(a) !== String(b))
    if (other.length > 0) found[scenario] = Object.fromEntries(other)
  }
  return found
}
