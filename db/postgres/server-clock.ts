import type { BeatAnswer, PresenceParticipant } from './presence.ts'

/** PostgreSQL's expression for its clock's time. ms since the epoch. */
export const SERVER_CLOCK = '(extract(epoch from clock_timestamp()) * 1000)::float8'
/** A beat that takes longer tells nothing about clocks. ms. */
const MAX_BEAT_MS = 1_000

/** The server's clock, as the last beat has said it: a part of a statement that is asked anyway. */
export class ServerClock implements PresenceParticipant {
  #askedAt = 0
  /** The server's time less this process's monotonic one; null: not known. ms. */
  #offset: number | null = null

  /** The server's time now. ms since the epoch. */
  get now(): number | null {
    return this.#offset === null ? null : this.#offset + performance.now()
  }

  asks(): readonly string[] {
    this.#askedAt = performance.now()
    return [`${SERVER_CLOCK} as clock`]
  }

  heard({ clock }: BeatAnswer): void {
    const now = performance.now()
    if (clock === undefined || now - this.#askedAt > MAX_BEAT_MS) return
    this.#offset = clock - (this.#askedAt + now) / 2
  }
}
