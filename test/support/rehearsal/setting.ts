import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestGateway } from '../gateway.ts'
import { type Authority, type Changed, HELD, type Members, PARTS, type Part, USUAL } from './authority.ts'
import { type Administer, type Drawn, enrolling, type Person } from './people.ts'

/** The code of the operator's own check, which is asked where {@link CHECK} is there. */
export const CHECK_CODE = {
  'models.js': `export const plugin = (_, { Refusal }) => ({ name: 'models', needs: ['call'],
    admit: ({ call }) => { if (call.model === 'gpt-no') throw new Refusal('policy_denied') } })\n`,
}
const CHECK = '35-models.yaml'

const OPEN: Members = { required_capability: null, tool_capabilities: {}, enabled: true }

function initially({ kind }: Part): Members {
  if (kind === 'set') return { capabilities: HELD }
  if (kind === 'active') return { is_active: true }
  if (kind === 'bound') return { bound: false }
  return kind === 'server' ? OPEN : USUAL
}

/** What is so at a gateway, and the way to have it otherwise. */
export class Setting {
  readonly #gateway: TestGateway
  readonly #admin: Administer
  readonly #servers: readonly string[]
  readonly #enroll: ReturnType<typeof enrolling>
  readonly #bindings = new Map<string, string>()
  #people: readonly Person[] = []
  #entered = 0
  #now: Members[] = PARTS.map(initially)

  constructor(gateway: TestGateway, admin: Administer, servers: readonly string[]) {
    this.#gateway = gateway
    this.#admin = admin
    this.#servers = servers
    this.#enroll = enrolling(gateway, admin)
  }

  async enter(drawn: readonly Drawn[]): Promise<readonly Person[]> {
    for (const person of this.#people) person.leave()
    this.#now = this.#now.map((members, index) => {
      const part = PARTS[index]
      return part && 'who' in part ? initially(part) : members
    })
    this.#entered += 1
    this.#people = await Promise.all(
      drawn.map((one, index) => this.#enroll(`p${index}-${this.#entered}`, one)),
    )
    return this.#people
  }

  async bring(wanted: Authority): Promise<void> {
    for (const [index, part] of PARTS.entries()) {
      const members = wanted[index] ?? {}
      if (JSON.stringify(this.#now[index]) === JSON.stringify(members)) continue
      await this.#put(part, members)
      this.#now[index] = members
    }
  }

  /** Changes as the admin API takes them. */
  changesOf(changed: Changed): readonly object[] {
    return PARTS.flatMap((part, index) => {
      const members = changed[index]
      return members ? [this.#changeOf(part, members)] : []
    })
  }

  #changeOf(part: Part, members: Members): object {
    if (part.kind === 'settings') return { settings: members }
    const principal = 'who' in part && { principal: this.#people[part.who]?.id }
    const resource = 'server' in part && { resource: this.#servers[part.server] }
    return { ...principal, ...resource, ...members }
  }

  async #put(part: Part, members: Members): Promise<void> {
    const resource = 'server' in part ? this.#servers[part.server] : undefined
    if (part.kind === 'settings') return this.#configure(members)
    if (part.kind === 'server') {
      await this.#admin('PATCH', `/v1/admin/mcp-resources/${resource}`, members)
      return
    }
    const { path = '', id = '' } = this.#people[part.who] ?? {}
    if (part.kind === 'set') await this.#admin('PATCH', `${path}/capabilities`, members)
    else if (part.kind === 'bound') await this.#bind(id, resource ?? '', members.bound === true)
    else if (members.is_active === true) await this.#admin('POST', `${path}/reactivate`)
    else await this.#admin('DELETE', path)
  }

  async #bind(agent_id: string, resource_id: string, bound: boolean): Promise<void> {
    const bindings = '/v1/admin/mcp-resources/bindings'
    const known = `${agent_id} ${resource_id}`
    if (bound) {
      const { json } = await this.#admin('POST', bindings, { agent_id, resource_id })
      this.#bindings.set(known, json.binding_id)
    } else await this.#admin('DELETE', `${bindings}/${this.#bindings.get(known)}`)
  }

  async #configure(settings: Members): Promise<void> {
    const { egress_dpop_mode, no_downgrade, enforce_tools_call, checked } = settings
    // What is JSON is YAML.
    const write = (name: string, members: object) =>
      writeFile(join(this.#gateway.pluginsDir, name), JSON.stringify(members))
    await write('20-dpop.yaml', { plugin: 'dpop', egress_dpop_mode, no_downgrade })
    await write('60-mcp.yaml', { plugin: 'mcp', enforce_tools_call })
    if (checked) await write(CHECK, { plugin: './models.js' })
    else await rm(join(this.#gateway.pluginsDir, CHECK), { force: true })
    if (!(await this.#gateway.reload())) throw new Error('the operators’ files are refused')
  }
}
