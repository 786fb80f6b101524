import { Agent } from 'node:https'
import type { Test } from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { chainOf } from '../authority.ts'
import { requestFor } from '../certs/certified.ts'
import type { Answered, Identity, Json } from '../gateway.ts'
import { rawMcp } from '../mcp/raw-upstream.ts'
import { legacyWith, mcpStage, type Stage, tool } from '../mcp/stage.ts'
import { onTheMachine, ownerOnTheMachine } from '../operators.ts'
import type { Asking, Things } from './asking.ts'
import { differences, type Kind, TwoPeople } from './oracle.ts'

/** Answers of administration, whoever asks. */
export type Ask = (asking: Asking) => Promise<Pick<Answered, 'status' | 'json'>>

/** A gateway that asks for two people, with all that they may change. */
export interface TwoPeopleStage {
  readonly stage: Stage
  readonly machine: ReturnType<typeof onTheMachine>
  readonly things: Things
  /** Two owners. */
  readonly mallory: Identity
  readonly bob: Identity
  /** What somebody asks, several at once too. A proposal that is made is known from then on. */
  readonly as: (who: Identity) => Ask
  readonly bySecret: Ask
  readonly byMachine: Ask
  /** What the whole ledger comes to, read by the rule, and whether the tables are what it says. */
  readonly judged: () => Promise<{ people: TwoPeople; differences: readonly string[] }>
}

/** `kinds`: those that need two people. */
export async function twoPeopleStage(t: Test, kinds: readonly Kind[]): Promise<TwoPeopleStage> {
  const files = { '70-operators.yaml': `plugin: operators\ntwo_person: [${kinds.join(', ')}]\n` }
  const stage = await mcpStage(t, { files })
  const machine = onTheMachine(stage)
  const bot = await stage.enroll('bot', ['llm.chat'])
  const idle = await stage.enroll('idle', [])
  const ada = (await stage.admin('POST', '/v1/admin/users', { user_name: 'ada' })).json.principal_id
  let about = 'Writes.'
  const server = await rawMcp(t, (res, told) =>
    legacyWith([tool('read'), tool('write', { description: about })])(res, told),
  )
  const resource = await stage.register('files', server, {
    required_capability: 'files.use',
    tool_capabilities: { write: 'files.write' },
  })
  const { binding_id } = await stage.bind(bot, resource)
  about = 'Writes something else.'
  const waiting: string = (await stage.refresh(resource)).tools[1].pending_digest
  const [mallory, bob, carol] = [
    await ownerOnTheMachine(stage, 'mallory'),
    await ownerOnTheMachine(stage, 'bob'),
    await ownerOnTheMachine(stage, 'carol'),
  ]
  await machine('DELETE', `/v1/admin/operators/${carol.id}`)
  const known: string[] = []
  const asking =
    (ask: (asking: Asking) => Promise<Pick<Answered, 'status' | 'json'>>): Ask =>
    async (one) => {
      const answer = await ask({ ...one, path: pathOf(one, known) })
      if (answer.status === 202) known.push(answer.json.proposal_id)
      return answer
    }
  return {
    stage,
    machine,
    mallory,
    bob,
    things: {
      agents: [bot.id, idle.id],
      users: [ada],
      operators: [mallory.id, bob.id, carol.id],
      certified: [carol.id],
      secret: false,
      resource: resource.resource_id,
      waiting,
      bindings: [binding_id],
      csr: (await requestFor(t)).csr,
      endpoint: server.url,
    },
    as: (who) => {
      const agent = new Agent({ ca: stage.ca, cert: who.cert, key: who.key, keepAlive: true })
      t.teardown(() => agent.destroy())
      return asking(({ method, path, body, headers = {} }) =>
        stage.call(who, method, path, { headers, agent, ...(body !== undefined && { body }) }),
      )
    },
    bySecret: asking(({ method, path, body, headers }) => stage.admin(method, path, body, headers)),
    byMachine: asking(({ method, path, body, headers }) => machine(method, path, body, headers)),
    judged: async () => {
      const rows = await chainOf(stage)
      const database = await openDatabase(stage.settings.databaseUrl)
      const found = await differences(database, rows)
      await database.close()
      return { people: new TwoPeople(kinds).read(rows), differences: found }
    },
  }
}

/** Of those proposals that were made last. */
const LATELY = 8

function pathOf({ path, proposal }: Asking, known: readonly string[]): string {
  if (proposal === undefined) return path
  const lately = known.slice(-LATELY)
  return `/v1/admin/proposals/${lately[proposal % Math.max(lately.length, 1)] ?? 'prop_0'}${path}`
}

/** How often each answer was given, by its status and its reason. */
export class Tally {
  readonly #counts = new Map<string, number>()

  count({ status, json }: { readonly status: number; readonly json: Json }): void {
    const name = [status, json?.reason].filter((part) => part !== undefined).join(' ')
    this.#counts.set(name, this.of(name) + 1)
  }

  of(name: string): number {
    return this.#counts.get(name) ?? 0
  }

  toString(): string {
    return [...this.#counts].map(([name, count]) => `${count} × ${name}`).join(', ')
  }
}
