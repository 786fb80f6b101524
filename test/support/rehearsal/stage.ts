import { Agent } from 'node:https'
import type { Test } from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { ADMIN_SECRET, type Json } from '../gateway.ts'
import { rawMcp } from '../mcp/raw-upstream.ts'
import { legacyWith, mcpStage, type Stage, tool } from '../mcp/stage.ts'
import { eventually } from '../settled.ts'
import type { Authority, Changed } from './authority.ts'
import type { Administer, Drawn, Person } from './people.ts'
import { CHECK_CODE, Setting } from './setting.ts'
import { countedIn, type Decided, decisionsOf, summariesSince } from './verdicts.ts'

const MINUTE_MS = 60_000
const TEXT = { type: 'object', properties: { text: { type: 'string' } } }

/** A gateway whose authority is what a test says, and which is asked what another one would have done. */
export interface RehearsalStage {
  /** Principals of one history, which hold all there is and are bound to nothing. */
  readonly enter: (drawn: readonly Drawn[]) => Promise<readonly Person[]>
  /** Makes it so, by the admin API and by reloads. */
  readonly bring: (wanted: Authority) => Promise<void>
  /** What POST /v1/admin/rehearsals answers. `since`: ms since the epoch. */
  readonly rehearse: (changed: Changed, since: number) => Promise<Json>
  /** The rows of the decisions on requests, by their ids. */
  readonly decisions: (ids: readonly string[]) => Promise<ReadonlyMap<string, Decided>>
  /** Ends the minute of refusals that have no rows of their own. Resolves with the time of the summary of so many. */
  readonly summarised: (count: number, since: number) => Promise<string>
  /** The number of decisions that there are in all. */
  readonly counted: () => Promise<number>
}

export async function rehearsalStage(t: Test): Promise<RehearsalStage> {
  let ahead = 0
  const stage = await mcpStage(t, { files: CHECK_CODE, monotonic: () => performance.now() + ahead })
  const agent = new Agent({ ca: stage.ca, keepAlive: true })
  t.teardown(() => agent.destroy())
  const admin: Administer = async (method, path, body) => {
    const headers = { 'x-admin-secret': ADMIN_SECRET }
    const answered = await stage.call(null, method, path, {
      headers,
      agent,
      ...(body !== undefined && { body }),
    })
    if (answered.status < 300) return answered
    throw new Error(`${method} ${path} ${JSON.stringify(body)}: ${answered.status} ${answered.text}`)
  }
  const database = await openDatabase(stage.settings.databaseUrl)
  t.teardown(() => database.close())
  const setting = new Setting(stage, admin, await serversOf(t, stage))
  return {
    enter: (drawn) => setting.enter(drawn),
    bring: (wanted) => setting.bring(wanted),
    rehearse: async (changed, since) => {
      const [from, until] = [since, Date.now() + 60_000].map((at) => new Date(at).toISOString())
      const asked = { changes: setting.changesOf(changed), since: from, until }
      return (await admin('POST', '/v1/admin/rehearsals', asked)).json
    },
    decisions: (ids) => decisionsOf(database, ids),
    summarised: async (count, since) => {
      ahead += MINUTE_MS
      const look = () => summariesSince(database, new Date(since).toISOString())
      const found = await eventually(look, (summaries) => summaries.count === count)
      if (found.count === count) return found.at
      throw new Error(`${found.count} refusals are summarised, of ${count}`)
    },
    counted: () => countedIn(database),
  }
}

/** Two MCP servers: one with a tool that has changed since it was approved, one with a single tool. */
async function serversOf(t: Test, stage: Stage): Promise<readonly string[]> {
  let about = 'Is as it was.'
  const files = await rawMcp(t, (res, told) =>
    legacyWith([tool('read'), tool('write', { inputSchema: TEXT }), tool('changed', { description: about })])(
      res,
      told,
    ),
  )
  const notes = await rawMcp(t, legacyWith([tool('read')]))
  const registered = await stage.register('files', files)
  about = 'Is another one.'
  await stage.refresh(registered)
  return [registered.resource_id, (await stage.register('notes', notes)).resource_id]
}
