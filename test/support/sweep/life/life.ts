import { hash } from 'node:crypto'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import { entry } from '../../db/scratch-ledger.ts'
import { decisionOf, noteOf, summaryOf } from './calls.ts'
import { type Person, stateOf, stateOfConfiguration, stateOfServer } from './people.ts'
import { Society } from './society.ts'
import type { Plan, Step } from './steps.ts'
import { type Asked, fateOf } from './verdict.ts'
import { Writing, type Written } from './writing.ts'

/** An honest history. */
export interface Life {
  readonly written: readonly Written[]
  /** The sizes at which a checkpoint was signed, and by which of the log's keys: two, for a time after a rotation. */
  readonly sealed: readonly { readonly size: number; readonly keys: readonly number[] }[]
  /** What committed to a body, by request. */
  readonly bodies: ReadonlyMap<string, { readonly body: string; readonly salt: string }>
}

const START = Date.UTC(2026, 0, 2, 3, 4, 5, 6)
const HOUR = 3_600_000
const TOOLS = ['read', 'write', 'é𝄞']
const ENDS = ['success', 'error', 'truncated'] as const
export const NOBODY = {
  request_id: null,
  principal_id: null,
  principal_type: null,
  model: null,
  cert_thumbprint: null,
}

/** Plays a plan. The same one makes the same history. */
export const lived = (plan: Plan): Life => new Living(plan).life()

class Living {
  readonly #plan: Plan
  readonly #writing = new Writing()
  readonly #society = new Society()
  readonly #open: { readonly stream: string; readonly decision: LedgerEntry }[] = []
  readonly #streams: string[] = []
  readonly #sealed: { size: number; keys: readonly number[] }[] = []
  readonly #bodies = new Map<string, { body: string; salt: string }>()
  #count = 0
  #at = START
  #logKey = 0
  #beside = 0

  constructor(plan: Plan) {
    this.#plan = plan
  }

  life(): Life {
    for (let row = 0; this.#plan.engine === 'sqlite' && row < this.#plan.old; row += 1)
      this.#writing.write(
        'main',
        entry({ ...NOBODY, at: this.#at, action: 'admin.secret_rotated', status: 'success' }),
        1,
      )
    this.#begin()
    this.#play({ kind: 'create', one: 0, other: 2, yes: true })
    for (const step of this.#plan.steps) this.#play(step)
    this.#seal()
    return { written: this.#writing.written, sealed: this.#sealed, bodies: this.#bodies }
  }

  get #stream(): string {
    return this.#streams.at(-1) ?? 'main'
  }

  #note(action: string, detail: JsonObject, values: Partial<LedgerEntry> = {}, stream = this.#stream): void {
    const { digest } = this.#society.configuration
    const row = entry({
      ...NOBODY,
      at: this.#at,
      action,
      status: 'success',
      config_digest: digest,
      detail,
      ...values,
    })
    this.#writing.write(stream, row)
  }

  /** A process begins to serve. */
  #begin(): void {
    const replica = `r${hash('sha256', `${this.#count}/${this.#streams.length}`).slice(0, 16)}`
    if (this.#plan.engine === 'postgres' || this.#streams.length === 0)
      this.#streams.push(this.#plan.engine === 'postgres' ? replica : 'main')
    this.#note('service.started', { node: '24.21.0' })
    this.#note('config.loaded', stateOfConfiguration(this.#society.configuration))
  }

  /** A process dies: what it left open is ended by the next one, on PostgreSQL from another stream. */
  #crash(): void {
    const [dead, left] = [this.#stream, this.#open.filter(({ stream }) => stream === this.#stream)]
    const close = (): void => {
      for (const call of left) this.#end(this.#open.indexOf(call), 'unknown', this.#stream)
    }
    if (dead === 'main') close()
    this.#begin()
    if (dead !== 'main') close()
  }

  #end(index: number, status: string, by?: string): void {
    const [call] = this.#open.splice(index, 1)
    if (!call) return
    const { decision, stream } = call
    const detail: JsonObject =
      status === 'unknown'
        ? { reason: 'crash' }
        : { http_status: 200, ending: 'complete', latency_ms: this.#count % 90 }
    this.#writing.write(by ?? stream, {
      ...decision,
      at: this.#at,
      status,
      provider: 'openai',
      dpop_jkt: null,
      detail,
    })
  }

  #play({ kind, one, other, yes }: Step): unknown {
    this.#count += 1
    this.#at += 1 + (one % 5) * (yes ? 1 : HOUR / 10)
    const society = this.#society
    const person = society.people[one % Math.max(1, society.people.length)]
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check -- the others are about somebody
    switch (kind) {
      case 'crash':
        return this.#crash()
      case 'restart':
        while (this.#open.length > 0) this.#end(0, 'success')
        this.#note('service.stopped', {})
        return this.#begin()
      case 'replica':
        return this.#plan.engine === 'postgres' && this.#streams.length < 5 ? this.#begin() : undefined
      case 'seal':
        return this.#seal()
      case 'rotate-log':
        this.#note('audit.key_rotated', { vkey: `of ${this.#logKey + 1}` })
        this.#logKey += 1
        this.#beside = 2
        return undefined
      case 'end':
        return this.#end(one % Math.max(1, this.#open.length), ENDS[other % 3] ?? 'success')
      case 'strangers':
      case 'refused':
      case 'signed-in':
        return this.#note(...noteOf(kind, one, this.#instant()))
      case 'configure':
        society.configure(one, other, yes)
        return this.#note('config.loaded', stateOfConfiguration(society.configuration))
      case 'demand':
      case 'approve':
      case 'quarantine':
      case 'disable':
        return this.#server(kind, one, other, yes)
      case 'create': {
        const made = society.create(one, yes)
        return made === null ? undefined : this.#changed(made, 'created')
      }
      default:
        return person && this.#about(person, { kind, one, other, yes })
    }
  }

  /** What happens to somebody, or is done by somebody. */
  #about(person: Person, { kind, one, other, yes }: Step): unknown {
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check -- the others change somebody
    switch (kind) {
      case 'chat':
      case 'call':
      case 'list':
        return this.#decide(kind, person, other, yes)
      case 'invalid':
        return this.#invalid(person)
      case 'flood':
        return this.#flood(person, one)
      case 'bind':
      case 'unbind':
        return this.#bind(person, kind === 'bind')
      default: {
        const what = this.#society.change(person, kind, other, this.#instant(HOUR))
        return what === null ? undefined : this.#changed(person, what)
      }
    }
  }

  #instant = (later = 0): string => new Date(this.#at + later).toISOString()

  #changed(person: Person, what: string): void {
    const named = person.name === null ? {} : { subject_name: person.name }
    const detail = { ...stateOf(person), via: 'secret' }
    const { digest } = this.#society.configuration
    const row = entry({
      ...NOBODY,
      at: this.#at,
      action: `${person.type}.${what}`,
      status: 'success',
      principal_id: 'admin',
      principal_type: 'operator',
      config_digest: digest,
      detail,
    })
    this.#writing.write(this.#stream, row, 2, named)
  }

  #server(
    kind: 'demand' | 'approve' | 'quarantine' | 'disable',
    one: number,
    other: number,
    yes: boolean,
  ): void {
    const { server } = this.#society
    const isNew = server.revision === 0
    server.revision += 1
    server.required = [null, 'files.use', 'x'][one % 3] ?? null
    server.own = yes && kind === 'demand' ? { write: 'mcp.tools.call' } : server.own
    server.enabled = isNew || kind !== 'disable' || yes
    const tool = TOOLS[other % 3] ?? 'read'
    const digest = `d${one}`
    const changes: JsonObject =
      isNew || kind === 'approve'
        ? { pinned: [[tool, digest]] }
        : kind === 'quarantine'
          ? { quarantined: [[tool, digest]] }
          : {}
    if (isNew || kind === 'approve') server.tools.set(tool, digest)
    else if (kind === 'quarantine') server.tools.set(tool, null)
    this.#note(`mcp_resource.${isNew ? 'created' : 'updated'}`, { ...stateOfServer(server), ...changes })
  }

  #bind(person: Person, bound: boolean): void {
    const { bindings, server } = this.#society
    const known = bindings.get(person.subject)
    if (server.revision === 0 || bound === (known !== undefined)) return
    const binding = known ?? `mcpb_${this.#count}`
    if (bound) bindings.set(person.subject, binding)
    else bindings.delete(person.subject)
    this.#note(`mcp_binding.${bound ? 'created' : 'revoked'}`, {
      binding,
      subject: person.subject,
      resource_id: 'mcpr_1',
    })
  }

  #decide(kind: 'chat' | 'call' | 'list', who: Person, other: number, yes: boolean): void {
    const { server } = this.#society
    if (kind === 'call' && server.revision === 0) return
    const tool = kind === 'call' ? (TOOLS[other % 4] ?? 'gone') : undefined
    const asked: Asked = {
      who,
      at: this.#instant(),
      thumbprint: who.thumbprints[other % Math.max(1, who.thumbprints.length)]?.[0] ?? 'ee'.repeat(32),
      key: yes
        ? (who.keys[other % Math.max(1, who.keys.length)]?.[0] ?? (other % 2 === 0 ? 'k'.repeat(43) : null))
        : null,
      ...(tool !== undefined && { tool }),
      ...(kind === 'list' && { demand: 'mcp.tools.list' }),
    }
    const fate = fateOf(asked, this.#society)
    const id = `req_${String(this.#count).padStart(6, '0')}`
    const decision = decisionOf(
      asked,
      { id, at: this.#at, kind, fate, commitment: this.#commitment(id) },
      this.#society,
    )
    this.#writing.write(this.#stream, decision, 2, who.name === null ? {} : { principal_name: who.name })
    if (fate.reason === null) this.#open.push({ stream: this.#stream, decision })
  }

  #commitment(id: string): JsonObject {
    const [body, salt] = [`{"model":"gpt-5","n":${this.#count},"é":"𝄞"}`, hash('sha256', id).slice(0, 32)]
    this.#bodies.set(id, { body, salt })
    return {
      body_sha256: hash('sha256', Buffer.concat([Buffer.from(salt, 'hex'), Buffer.from(body)])),
      body_bytes: Buffer.byteLength(body),
    }
  }

  #invalid(who: Person): void {
    this.#note(
      'egress_llm_chat',
      { reason: 'invalid_request' },
      {
        request_id: `req_i${this.#count}`,
        principal_id: who.subject,
        principal_type: who.type,
        status: 'invalid',
      },
    )
  }

  /** One row for many refusals, of a principal that lacks the capability. */
  #flood(who: Person, count: number): void {
    if (who.capabilities.includes('llm.chat')) return
    const times = { since: this.#instant(-1_000), until: this.#instant() }
    const detail = summaryOf(who, count, times, this.#society)
    this.#note('egress_llm_chat', detail, {
      principal_id: who.subject,
      principal_type: who.type,
      status: 'denied',
    })
  }

  #seal(): void {
    const size = this.#writing.written.length
    if (this.#sealed.at(-1)?.size === size) return
    const keys = this.#beside > 0 && this.#logKey > 0 ? [this.#logKey, this.#logKey - 1] : [this.#logKey]
    this.#beside -= 1
    this.#sealed.push({ size, keys })
  }
}
