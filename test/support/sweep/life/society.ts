import { hash } from 'node:crypto'
import type { Configuration, Person, Server } from './people.ts'

const SETS = [
  [],
  ['llm.chat'],
  ['files.use', 'llm.chat'],
  ['files.use', 'llm.chat', 'mcp.tools.call', 'mcp.tools.list'],
  ['mcp.tools.list'],
  ['x'],
]
const MODES = ['off', 'optional', 'optional', 'required'] as const

/** Who may do what, as it is now: the truth that rows are written of. */
export class Society {
  readonly people: Person[] = []
  readonly server: Server = { revision: 0, required: null, own: {}, enabled: true, tools: new Map() }
  /** The binding of a principal, by its subject. */
  readonly bindings = new Map<string, string>()
  configuration: Configuration = {
    digest: 'ab'.repeat(32),
    ...{ mode: 'optional', noDowngrade: false, enforced: false, checks: [] },
  }
  #made = 0

  configure(one: number, other: number, yes: boolean): void {
    const mode = MODES[one % 4] ?? 'optional'
    const checks = [[], ['calm'], ['calm', 'watch']][other % 3] ?? []
    const said = { mode, noDowngrade: yes, enforced: one % 2 === 1, checks }
    this.configuration = { digest: hash('sha256', JSON.stringify(said)), ...said }
  }

  /** Makes a principal; null where there are enough. */
  create(one: number, yes: boolean): Person | null {
    if (this.people.length >= 5) return null
    this.#made += 1
    const type = (['agent', 'user', 'workload'] as const)[one % 3] ?? 'agent'
    const subject = type === 'user' ? `usr_${'a'.repeat(25)}${this.#made}` : `acme::${type}::p${this.#made}`
    const person: Person = {
      ...{ type, subject, name: type === 'user' ? `acme::user::zoë"${this.#made}` : null, revision: 1 },
      ...{ capabilities: SETS[yes ? 3 : one % 6] ?? [], active: true, keys: [] },
      thumbprints: [[this.#thumbprint(), null]],
    }
    this.people.push(person)
    return person
  }

  /** Changes a principal; gives the end of the action's name, null where nothing was changed. */
  change(person: Person, kind: string, other: number, later: string): string | null {
    const change = (what: string, made: Partial<Person>): string => {
      Object.assign(person, made, { revision: person.revision + 1 })
      return what
    }
    const set = SETS[other % 6] ?? []
    switch (kind) {
      case 'grant':
        return change('capabilities_patched', { capabilities: set })
      case 'revoke':
        return change('capabilities_set', { capabilities: [] })
      case 'deactivate':
        return person.active ? change('deactivated', { active: false }) : null
      case 'reactivate':
        return person.active ? null : change('reactivated', { active: true })
      case 'rotate': {
        const old = person.thumbprints.slice(-1).map(([value]) => [value, later] as const)
        return change('cert_rotated', { thumbprints: [...old, [this.#thumbprint(), null]] })
      }
      case 'key': {
        const old = person.keys.slice(-1).map(([value]) => [value, later] as const)
        return change('dpop_jwk_set', { keys: [...old, [this.#thumbprint().slice(0, 43), null]] })
      }
      case 'erase':
        return this.#erase(person, change)
    }
    return null
  }

  #erase(person: Person, change: (what: string, made: Partial<Person>) => string): string | null {
    if (person.type !== 'user' || this.people.length < 2) return null
    this.people.splice(this.people.indexOf(person), 1)
    this.bindings.delete(person.subject)
    return change('erased', { name: null, capabilities: [], active: false, thumbprints: [], keys: [] })
  }

  #thumbprint(): string {
    this.#made += 1
    return hash('sha256', `certificate ${this.#made}`)
  }
}
