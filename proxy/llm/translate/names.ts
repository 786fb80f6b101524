import { hash } from 'node:crypto'

/** The names that each wire takes (Messages, tools.name). */
const PLAIN_NAME = /^[A-Za-z0-9_-]{1,64}$/
/** The ids that each wire takes (Messages, tool_use.id). */
const PLAIN_ID = /^[A-Za-z0-9_-]{1,64}$/
/** The characters of a name that stay before its digest: 64 with it. */
const KEPT = 55

/** A tool as the caller names it. */
export interface CallerTool {
  readonly name: string
  readonly namespace: string | null
  /** True: the caller's tool takes free text. The model is told of a function with one text. */
  readonly isCustom: boolean
}

/** A tool of a caller, and its name at the target. */
export type NamedTool = readonly [target: string, tool: CallerTool]

/** The names of a request's tools at the target, one each, the same in each request. */
export class ToolNames {
  readonly #byTarget: Map<string, CallerTool>
  readonly #plain = new Set<string>()

  /** `known`: those of a request that was translated elsewhere. */
  constructor(known: readonly NamedTool[] = []) {
    this.#byTarget = new Map(known)
  }

  /** Keeps the name of a tool without a namespace from those with one. Called for all, before any is defined. */
  reserve(name: unknown): void {
    if (typeof name === 'string') this.#plain.add(name)
  }

  /** Returns the target's name of a tool, and remembers whose it is. */
  define(tool: CallerTool): string {
    const name = this.nameOf(tool)
    this.#byTarget.set(name, tool)
    return name
  }

  nameOf({ name, namespace }: Pick<CallerTool, 'name' | 'namespace'>): string {
    if (namespace === null) return PLAIN_NAME.test(name) ? name : digested(name, [name])
    const joined = `${namespace}__${name}`
    const isOnly = !namespace.includes('__') && !name.startsWith('_') && !this.#plain.has(joined)
    return isOnly && PLAIN_NAME.test(joined) ? joined : digested(joined, [namespace, name])
  }

  named(): readonly NamedTool[] {
    return [...this.#byTarget]
  }

  /** Returns the caller's tool of this name; one that it has not defined is called as the model calls it. */
  toolOf(target: string): CallerTool {
    return this.#byTarget.get(target) ?? { name: target, namespace: null, isCustom: false }
  }
}

const digested = (name: string, whole: readonly string[]): string =>
  `${name.slice(0, KEPT).replaceAll(/[^A-Za-z0-9_-]/g, '_')}_${hash('sha256', JSON.stringify(whole)).slice(0, 8)}`

export const isPlainName = (name: string): boolean => PLAIN_NAME.test(name)

export const isPlainId = (id: string): boolean => PLAIN_ID.test(id)

/** Returns the target's id of a call: the same in each request. */
export const targetId = (id: string): string =>
  PLAIN_ID.test(id) ? id : `call_${hash('sha256', id).slice(0, 32)}`
