import { Counter, Gauge, type Registry } from 'prom-client'

/** A limit that there is. `part`: of its amount that is used by who is nearest; null: it was not read. */
export interface LimitFigure {
  readonly id: string
  readonly name: string
  readonly part: number | null
}

/** Reads the limits that there are, some at most. */
export type ReadLimitFigures = () => Promise<readonly LimitFigure[]>

/** Counts refusals by limit, for `/metrics`: those of limits that there are, so that labels are as many as these. */
export class LimitFigures {
  readonly #refused = new Map<string, number>()

  constructor(registers: Registry[], read: ReadLimitFigures) {
    const counts = this.#refused
    const present = (): Promise<readonly LimitFigure[]> => Promise.try(read).catch(() => [])
    new Counter({
      name: 'sallyport_limit_refused_total',
      help: 'Calls that a limit had no room for, by its name.',
      labelNames: ['limit'],
      registers,
      async collect() {
        const limits = await present()
        this.reset()
        for (const { id, name } of limits) this.inc({ limit: name }, counts.get(id) ?? 0)
      },
    })
    new Gauge({
      name: 'sallyport_limit_used_ratio',
      help: 'The part of its amount that is used of a limit, of the nearest principal if each has its own.',
      labelNames: ['limit'],
      registers,
      async collect() {
        const limits = await present()
        this.reset()
        for (const { name, part } of limits) if (part !== null) this.set({ limit: name }, part)
      },
    })
  }

  /** Counts a refusal. Ids come from limits alone: as many are kept as there have been. */
  noteRefused(id: string): void {
    this.#refused.set(id, (this.#refused.get(id) ?? 0) + 1)
  }
}
