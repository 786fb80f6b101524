// The load generator, a process of its own on the other core. It is sent one job at a time.

import { createHistogram } from 'node:perf_hooks'
import { messageOf } from '../../../db/support/error-message.ts'
import { cpuUsOf, rssMbOf } from '../ground/proc.ts'
import { type FromGenerator, type Job, type Measured, PROOF_PLACE } from '../job.ts'
import { proofSupply } from './proof-supply.ts'
import { type Answer, type NextRequest, nowUs, Wire } from './wire.ts'

/** The connections that are opened at a time: more handshakes at once would wait until they are too late. */
const OPENING = 16
/** The number of errors at which a target is given up. */
const MAX_ERRORS = 10_000
/**
 * The sleep of an open loop between two looks for due requests. Blocks this thread, and frees the core. ms.
 */
const NAP_MS = 0.05

const send = (message: FromGenerator): void => void process.send?.(message)

process.on('disconnect', () => process.exit(0))
process.on('SIGINT', () => {})
process.on('message', (job: Job) => {
  run(job).then(
    (measured) => send({ kind: 'measured', measured }),
    (error: unknown) => send({ kind: 'failed', message: messageOf(error) }),
  )
})
send({ kind: 'ready' })

/**
 * Runs one job and resolves with what was measured after the warm-up. Rejects where the target cannot be
 * measured.
 */
function run(job: Job): Promise<Measured> {
  const { promise, resolve, reject } = Promise.withResolvers<Measured>()
  const tally = new Tally(job)
  const free: Wire[] = []
  let isOver = false
  let opened = 0
  let standing = 0

  const openNext = (): void => {
    wires[opened]?.open()
    opened += 1
  }
  // The time begins when all connections stand.
  const begin = (): void => {
    setTimeout(() => tally.start(), job.warmupS * 1_000)
    setTimeout(() => finish(() => resolve(tally.take())), (job.warmupS + job.seconds) * 1_000)
    if (job.rate === null) for (const wire of free.splice(0)) wire.send()
  }
  const finish = (settle: () => void): void => {
    if (isOver) return
    isOver = true
    settle()
    for (const wire of wires) wire.close()
  }
  const fail = (message: string): void => finish(() => reject(new Error(message)))
  const next = (wire: Wire): void => {
    if (isOver) return
    // Those that stand first would be answered while the others still shake hands.
    if (job.rate === null && standing >= job.connections) wire.send()
    else free.push(wire)
  }
  const events = {
    idle: (wire: Wire): void => {
      standing += 1
      // A server closes a connection that never asked much earlier than one that did once.
      if (job.rate !== null) wire.send()
      else next(wire)
      if (standing === job.connections) begin()
      openNext()
    },
    answered: (wire: Wire, answer: Answer): void => {
      tally.add(answer)
      if (tally.wrong > MAX_ERRORS) fail(`${said(answer)} again and again, not ${wanted(job)}`)
      if (tally.answers === job.enough) finish(() => resolve(tally.take()))
      if (isOver) return
      if (job.reconnect) wire.reopen()
      else next(wire)
    },
    broke: (wire: Wire, error: Error | null): void => {
      if (isOver) return
      const waiting = free.indexOf(wire)
      if (waiting >= 0) free.splice(waiting, 1)
      if (error) tally.broken()
      if (tally.wrong > MAX_ERRORS || (error && standing === 0)) fail(`no answer: ${String(error)}`)
      else wire.reopen()
    },
  }
  const request = requests(job)
  const wires = Array.from({ length: job.connections }, () => new Wire(job, request, events))
  for (let count = Math.min(OPENING, wires.length); count > 0; count -= 1) openNext()
  if (job.rate !== null) openLoop(job.rate, free, () => isOver)
  return promise
}

const said = ({ status, bodyBytes }: Answer): string => `answered ${status} with ${bodyBytes} bytes`
const wanted = ({ expect, leastBytes }: Job): string => `${expect} with at least ${leastBytes}`

/** Returns always the same bytes, or the same around a proof that is new each time. */
function requests({ request, proofs }: Job): NextRequest {
  const bytes = Buffer.from(request)
  if (!proofs) return () => bytes
  const [before = '', after = ''] = request.split(PROOF_PLACE)
  const proof = proofSupply(proofs)
  return () => before + proof() + after
}

/**
 * Sends at a fixed rate, whatever the answers do, as long as a connection is free; what is due while none is
 * goes out as soon as one is. A time begins when the request is sent, so a target that cannot keep up shows
 * in the rate first.
 */
function openLoop(rate: number, free: Wire[], isOver: () => boolean): void {
  const nap = new Int32Array(new SharedArrayBuffer(4))
  const startedUs = nowUs()
  let sent = 0
  const look = (): void => {
    if (isOver()) return
    const due = Math.floor(((nowUs() - startedUs) * rate) / 1_000_000)
    for (; sent < due; sent += 1) {
      const wire = free.shift()
      if (!wire) break
      wire.send()
    }
    // Timers are no finer than 1 ms, which would send in bunches.
    Atomics.wait(nap, 0, 0, NAP_MS)
    setImmediate(look)
  }
  look()
}

/** Counts answers, of which those before `start` are forgotten. */
class Tally {
  readonly #job: Job
  readonly #whole = createHistogram({ lowest: 1, highest: 60_000_000, figures: 3 })
  readonly #first = createHistogram({ lowest: 1, highest: 60_000_000, figures: 3 })
  answers = 0
  #errors = 0
  #startUs = nowUs()
  #cpuUs: number | null = null
  #ownUs = 0
  /** Errors since the beginning, warm-up included. */
  wrong = 0

  constructor(job: Job) {
    this.#job = job
  }

  add({ status, bodyBytes, sentUs, firstUs }: Answer): void {
    if (status !== this.#job.expect || bodyBytes < this.#job.leastBytes) this.broken()
    const at = nowUs()
    this.answers += 1
    this.#whole.record(Math.max(1, Math.round(at - sentUs)))
    this.#first.record(Math.max(1, Math.round(firstUs - sentUs)))
  }

  broken(): void {
    this.wrong += 1
    this.#errors += 1
  }

  start(): void {
    this.#whole.reset()
    this.#first.reset()
    this.answers = 0
    this.#errors = 0
    this.#cpuUs = cpuUsOf(this.#job.pid)
    this.#ownUs = ownUs()
    this.#startUs = nowUs()
  }

  take(): Measured {
    const took = nowUs() - this.#startUs
    const cpuUs = cpuUsOf(this.#job.pid)
    const used = cpuUs !== null && this.#cpuUs !== null ? cpuUs - this.#cpuUs : null
    return {
      requests: this.answers,
      errors: this.#errors,
      perSecond: (this.answers / took) * 1_000_000,
      p50: this.#whole.percentile(50),
      p99: this.#whole.percentile(99),
      firstP50: this.#first.percentile(50),
      firstP99: this.#first.percentile(99),
      cpuUs: used === null || this.answers === 0 ? null : used / this.answers,
      rssMb: rssMbOf(this.#job.pid),
      generatorBusy: (ownUs() - this.#ownUs) / took,
    }
  }
}

function ownUs(): number {
  const { user, system } = process.cpuUsage()
  return user + system
}
