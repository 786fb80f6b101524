import { randomUUID } from 'node:crypto'
import type { CallAuthority } from '../../../plugins/call-authority.ts'
import type { HangupSignal, MemoryReservation } from '../../../plugins/plugin.ts'
import { CallHangup, isStillAllowed } from '../../http/open-calls.ts'
import type { AnswerMessages } from '../upstream/events.ts'
import type { SessionOwner } from '../upstream/sessions.ts'

/** The time that a call waits for its caller's answer. ms. */
const PARKED_MS = 600_000
/** The most calls that wait: of one principal, whose oldest goes, and of all. */
const MAX_OF_PRINCIPAL = 16
const MAX_IN_ALL = 512
/** The most that one call may hold while it waits: no account of a request has it then. Bytes. */
export const MAX_PARKED_BYTES = 1024 * 1024
const MAX_BYTES_IN_ALL = 64 * MAX_PARKED_BYTES
/** The bytes that each holds besides: its stream, and a reading of it. */
const BYTES_BESIDES = 65_536

/** A call at a server of the older era that has asked its caller something, who may answer by another request. */
export interface ParkedCall {
  readonly principalId: string
  readonly authority: CallAuthority
  /** The request as it was judged: the one that answers must be the same. */
  readonly subject: string
  readonly messages: AnswerMessages
  readonly owner: SessionOwner
  /** The server's own id of its question, JSON text. */
  readonly upstreamId: string
  readonly question: string
  /** The size of the requests, of which its stream keeps the first, and of the question. */
  readonly bytes: number
  readonly waiting: CallWait
}

/**
 * The calls that wait for their callers between two requests of the stateless era (MCP 2026-07-28, mrtr), of
 * this process, until nobody answers or they would be refused. If they are too many, or hold too much, those
 * of the principal with the most go first.
 */
export class ParkedCalls {
  readonly #calls = new Map<string, { readonly call: ParkedCall; readonly timer: NodeJS.Timeout }>()
  #bytes = 0

  /** Keeps a call until it is taken. Returns its name, which nobody can guess. */
  park(call: ParkedCall): string {
    this.#makeRoom(call)
    const id = randomUUID()
    const timer = setTimeout(() => this.#end(id), PARKED_MS).unref()
    this.#calls.set(id, { call, timer })
    this.#bytes += call.bytes + BYTES_BESIDES
    return id
  }

  find(id: string, { principalId, subject }: Pick<ParkedCall, 'principalId' | 'subject'>): ParkedCall | null {
    const call = this.#calls.get(id)?.call
    return call?.principalId === principalId && call.subject === subject ? call : null
  }

  /** Takes a call: of two answers the first does. Returns false if it waits no more. */
  take(id: string): boolean {
    const parked = this.#calls.get(id)
    if (!parked) return false
    clearTimeout(parked.timer)
    this.#bytes -= parked.call.bytes + BYTES_BESIDES
    return this.#calls.delete(id)
  }

  /** Ends the calls that would be refused if they came now. `at`: ms since the epoch. */
  async terminateRevoked(at: number): Promise<void> {
    await Promise.all(
      [...this.#calls].map(async ([id, { call }]) => {
        if (!(await isStillAllowed(() => call.authority.confirm(), at))) this.#end(id)
      }),
    )
  }

  /** Ends the oldest of the principal's own, or of the principal whose calls hold the most. */
  #makeRoom({ principalId, bytes }: ParkedCall): void {
    const theirs = [...this.#calls].filter(([, { call }]) => call.principalId === principalId)
    const [oldest] = theirs
    if (oldest && theirs.length >= MAX_OF_PRINCIPAL) this.#end(oldest[0])
    while (this.#calls.size >= MAX_IN_ALL || this.#bytes + bytes + BYTES_BESIDES > MAX_BYTES_IN_ALL) {
      const greatest = this.#oldestOfGreatest()
      if (greatest === null) return
      this.#end(greatest)
    }
  }

  #oldestOfGreatest(): string | null {
    const holders = new Map<string, { readonly oldest: string; bytes: number }>()
    for (const [id, { call }] of this.#calls) {
      const holder = holders.get(call.principalId) ?? { oldest: id, bytes: 0 }
      holder.bytes += call.bytes + BYTES_BESIDES
      holders.set(call.principalId, holder)
    }
    const [greatest] = [...holders.values()].sort((one, other) => other.bytes - one.bytes)
    return greatest?.oldest ?? null
  }

  #end(id: string): void {
    const call = this.#calls.get(id)?.call
    if (this.take(id)) call?.messages.close()
  }
}

/** The request that waits for a call at a server now: of several, one after another. */
export class CallWait {
  readonly hangup = new CallHangup()
  #caller: HangupSignal | null = null
  #held: MemoryReservation

  constructor(caller: HangupSignal, held: MemoryReservation) {
    this.#held = held
    this.follow(caller, held)
  }

  readonly held: MemoryReservation = {
    setOwner: (caller) => this.#held.setOwner(caller),
    tryReserve: (bytes) => this.#held.tryReserve(bytes),
    reserveAnswerInTurn: (bytes) => this.#held.reserveAnswerInTurn(bytes),
    reserveReply: (bytes) => this.#held.reserveReply(bytes),
  }

  follow(caller: HangupSignal, held: MemoryReservation): void {
    this.leave()
    this.#caller = caller
    this.#held = held
    if (caller.gone) this.#hungUp()
    else caller.onGone(this.#hungUp)
  }

  leave(): void {
    this.#caller?.offGone(this.#hungUp)
    this.#caller = null
  }

  readonly #hungUp = (): void => this.hangup.hangUp(this.#caller?.signal.reason)
}
