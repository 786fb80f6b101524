import cluster from 'node:cluster'
import { extname } from 'node:path'
import type { Logs } from '../telemetry/log.ts'
import { HandedOver } from './handed-over.ts'
import { wholeLines } from './lines.ts'
import { type End, Member } from './member.ts'
import { BEAT_MS, type OfParent } from './messages.ts'

/** So many workers that end before they serve, within this time, are no accident. ms. */
const FAULTS = 3
const FAULTS_WITHIN_MS = 60_000

/** How long the next try waits for each fault of late. ms. */
const AGAIN_MS = 1_000

interface Options {
  readonly logs: Logs
  /** Answers what a worker asks. */
  readonly answers: (member: Member) => OfParent
  /** Called for each new worker, before it is told anything. */
  readonly onStart: (member: Member) => void
  /** Called when the process of a worker has ended. */
  readonly onEnd: (member: Member) => void
  /** Called where workers cannot be started. Null: not even the first, which has said why. */
  readonly onFault: (error: Error | null) => void
}

/** The workers: starts them, and another one for each that dies or hangs. */
export class Crew {
  readonly #options: Options
  readonly #members = new Map<number, Member>()
  readonly #handedOver = new HandedOver()
  #faults: number[] = []
  #stopping = false
  /** True once any worker has served. */
  #begun = false
  /** True once all have. */
  #complete = false
  readonly #watch: NodeJS.Timeout

  constructor(options: Options) {
    this.#options = options
    cluster.schedulingPolicy = cluster.SCHED_RR
    cluster.setupPrimary({
      // The compiled package has it as .js: like the file that this is.
      exec: new URL(`../worker${extname(import.meta.filename)}`, import.meta.url).pathname,
      args: [],
      // Lines of many processes on one pipe must not mix; the last is for the database.
      stdio: ['ignore', 'pipe', 'inherit', 'ipc', 'pipe'],
      serialization: 'advanced',
    })
    // By turns of this process's own clock: whoever stops all processes for a while stops it too.
    this.#watch = setInterval(() => this.#killHung(), BEAT_MS)
  }

  /** Those whose process lives, or whose last words are not read yet. */
  get members(): readonly Member[] {
    return [...this.#members.values()]
  }

  get serving(): readonly Member[] {
    return this.members.filter(({ serves, dead }) => serves && !dead)
  }

  start(number: number): Member {
    const { logs, answers, onStart } = this.#options
    const worker = cluster.fork()
    this.#handedOver.watch(worker.process)
    const member = new Member(number, worker, answers)
    this.#members.set(member.id, member)
    if (member.output) wholeLines(member.output, logs.pass)
    onStart(member)
    void member.ended.then((end) => {
      this.#handedOver.release(worker.process, this.serving.length > 0)
      this.#ended(member, end)
    })
    void member.gone.then(() => this.#members.delete(member.id))
    return member
  }

  /** All serve: from now on one that cannot be replaced ends nobody else. */
  complete(): void {
    this.#complete = true
  }

  /** Has all drain and end. Resolves when none is left. A second call cuts what is under way. */
  async stop(graceMs: number | null): Promise<void> {
    this.#stopping = true
    this.#handedOver.stop()
    for (const member of this.members) {
      // What does not serve yet has nothing to drain.
      if (member.serves) void member.channel.ask('stop', graceMs).catch(() => {})
      else member.kill()
    }
    await Promise.all(this.members.map(({ gone }) => gone))
    clearInterval(this.#watch)
  }

  kill(): void {
    for (const member of this.members) member.kill()
  }

  #ended(member: Member, { code, signal }: End): void {
    this.#options.onEnd(member)
    if (this.#stopping) return
    this.#begun ||= member.serves || this.serving.length > 0
    if (!this.#begun) {
      this.#options.onFault(null)
      return
    }
    const seen = { worker: member.number, code, signal }
    this.#options.logs.log.warn(seen, 'a worker ended; another one takes its place')
    if (member.serves) this.start(member.number)
    else this.#fault(member.number)
  }

  /** Where others serve they go on without it: a file that somebody is writing must not end them. */
  #fault(number: number): void {
    const now = performance.now()
    this.#faults = [...this.#faults.filter((at) => now - at < FAULTS_WITHIN_MS), now]
    const alone = !this.#complete || this.serving.length === 0
    if (alone && this.#faults.length >= FAULTS) {
      const within = `within ${FAULTS_WITHIN_MS / 1000} s`
      this.#options.onFault(new Error(`${FAULTS} workers ended before they served, ${within}`))
    } else {
      setTimeout(() => this.#stopping || this.start(number), AGAIN_MS * this.#faults.length)
    }
  }

  #killHung(): void {
    for (const member of this.members) {
      if (!member.misses()) continue
      this.#options.logs.log.error({ worker: member.number }, 'a worker hangs and is killed')
      member.kill()
    }
  }
}
