import { databaseLocation } from '../../db/engine.ts'
import type { Hub } from '../../db/sqlite/workers/hub.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { copyingShown, makeDataDirectory } from '../boot/prepare-directory.ts'
import type { Settings } from '../boot/settings.ts'
import { freeControlPath } from '../http/control-socket.ts'
import { createLogs, type Logs } from '../telemetry/log.ts'
import { visibleLines } from '../visible.ts'
import { Crew } from './crew.ts'
import type { Member } from './member.ts'
import type { Agreement, OfParent, Orders, Serving } from './messages.ts'
import { MetricsOfAll } from './metrics-of-all.ts'
import { reloadTogether } from './reload-together.ts'

/** How long workers have for what is under way where this process has a fault; and, behind their grace, for their end. ms. */
const FAULT_GRACE_MS = 2_000
const END_MS = 15_000

/**
 * Starts as many workers as the settings say, and stands above them until it is stopped. Resolves when all serve.
 * This process reads no byte of a caller's: it hands connections to workers, writes the ledger of a SQLite database for
 * them, and replaces those that die.
 */
export async function startWorkers(settings: Settings): Promise<void> {
  const parent = new Parent(settings)
  process.on('SIGTERM', () => parent.stop(0))
  process.on('SIGINT', () => parent.stop(0))
  process.on('SIGHUP', () => parent.reload())
  process.on('uncaughtException', (error) => parent.fault(error))
  process.on('unhandledRejection', (error) => parent.fault(error))
  await parent.start()
}

class Parent {
  readonly #settings: Settings
  readonly #logs: Logs
  readonly #crew: Crew
  readonly #metrics: MetricsOfAll
  readonly #umask = process.umask()
  /** Who is between its agreement and its first call: a reload waits for them. */
  readonly #agreed = new Map<Member, PromiseWithResolvers<void>>()
  readonly #first = Promise.withResolvers<Serving>()
  readonly #all = Promise.withResolvers<void>()
  #hub: Hub | null = null
  #controlPath: string | null = null
  /** The digest of the configuration in force; null until the first worker has one. */
  #inForce: string | null = null
  #reloading: Promise<unknown> = Promise.resolve()
  /** What the first worker has said. */
  #serving: Serving | null = null
  #ports: Pick<Settings, 'listen' | 'adminListen'>
  /** Does what one alone does. Dead, or null, only while nobody serves. */
  #leader: Member | null = null
  #announced = false
  #stopping: Promise<void> | null = null

  constructor(settings: Settings) {
    this.#settings = settings
    this.#ports = settings
    this.#logs = createLogs(settings.logLevel)
    this.#crew = new Crew({
      logs: this.#logs,
      answers: (member) => this.#answers(member),
      onStart: (member) => this.#order(member),
      onEnd: (member) => this.#ended(member),
      onFault: (error) => (error ? this.fault(error) : this.stop(1)),
    })
    this.#metrics = new MetricsOfAll(
      () => this.#crew.serving,
      () => this.#logs.losses.lost,
    )
  }

  /** Starts one worker, and when it serves all others. */
  async start(): Promise<void> {
    const { workers } = this.#settings
    this.#crew.start(1)
    const { url, adminUrl, told } = await this.#first.promise
    for (let number = 2; number <= workers; number += 1) this.#crew.start(number)
    await this.#all.promise
    this.#crew.complete()
    this.#announced = true
    process.stderr.write(told)
    process.stdout.write(`${JSON.stringify({ msg: 'ready', url, admin_url: adminUrl })}\n`)
  }

  /** Has all drain and end, and ends this process. The second time what is under way is cut. */
  stop(code: number, graceMs: number | null = null): void {
    const stopped = this.#crew.stop(graceMs)
    const longest = (graceMs ?? this.#settings.shutdownGraceS * 1000) + END_MS
    setTimeout(() => this.#crew.kill(), this.#stopping ? END_MS : longest).unref()
    this.#stopping ??= stopped.then(async () => {
      await this.#hub?.close()
      await this.#logs.flush()
      process.exit(code)
    })
  }

  fault(error: unknown): void {
    process.stderr.write(`sallyport: stopping: ${visibleLines(messageOf(error))}\n`)
    this.stop(1, FAULT_GRACE_MS)
  }

  reload(): void {
    // What is wrong stands in the log and in the ledger already.
    this.#reload().catch(() => {})
  }

  #order(member: Member): void {
    this.#hub?.attach(member.id, member.database)
    const settings = { ...this.#settings, ...this.#ports }
    const orders: Orders = {
      settings,
      number: member.number,
      first: this.#serving === null,
      umask: this.#umask,
    }
    void member.channel.ask('start', orders).catch(() => {})
  }

  #answers(member: Member): OfParent {
    return {
      agree: (digest) => this.#agree(member, digest),
      serving: (serving) => this.#serves(member, serving),
      beat: () => {},
      ending: () => this.#ending(member),
      metrics: () => this.#metrics.text(),
    }
  }

  async #agree(member: Member, digest: string): Promise<Agreement> {
    await this.#reloading
    this.#controlPath ??= await this.#prepare(member)
    const records = digest !== this.#inForce && this.#crew.serving.length === 0
    if (records) this.#inForce = digest
    // The files were changed since: all change, or this worker does not come.
    if (digest !== this.#inForce && (await this.#reload()) !== digest) {
      throw new Error('the files are not those that the other workers read')
    }
    this.#agreed.set(member, Promise.withResolvers())
    return { controlPath: this.#controlPath, records }
  }

  /** Opens what is this process's own, once the first worker has found nothing wrong with the configuration. */
  async #prepare(first: Member): Promise<string> {
    await makeDataDirectory(this.#settings)
    const path = await freeControlPath(this.#settings.dataDir)
    const location = databaseLocation(this.#settings.databaseUrl)
    if (location.engine === 'sqlite') {
      const { openHub } = await import('../../db/sqlite/workers/hub.ts')
      const hub = await openHub(location.file, copyingShown())
      this.#hub = hub
      void hub.lost.then((error) => this.fault(error))
      hub.attach(first.id, first.database)
    }
    // For the control socket, which is made here: at no moment may others connect.
    process.umask(0o177)
    return path
  }

  #serves(member: Member, serving: Serving): void {
    this.#serving ??= serving
    // All others have died while this one was starting, and it was given another one of any ports.
    if (serving.url !== this.#serving.url) {
      member.kill()
      return
    }
    member.url = serving.url
    this.#first.resolve(serving)
    if (this.#crew.serving.length === this.#settings.workers) this.#all.resolve()
    this.#settle(member)
    this.#lead()
    if (this.#announced) this.#logs.log.info({ worker: member.number }, 'a worker serves')
  }

  #ended(member: Member): void {
    this.#settle(member)
    void this.#metrics.keep(member)
    if (this.#crew.serving.length === 0) this.#keepPorts()
    this.#lead()
  }

  /** Nobody holds the sockets any more: whoever comes opens them at the same ports, also where any would have done. */
  #keepPorts(): void {
    const { listen, adminListen } = this.#settings
    if (!this.#serving) return
    const { url, adminUrl } = this.#serving
    this.#ports = { listen: at(listen, url), adminListen: adminListen && at(adminListen, adminUrl) }
  }

  #settle(member: Member): void {
    this.#agreed.get(member)?.resolve()
    this.#agreed.delete(member)
  }

  /** Names another one where the one that leads is gone. */
  #lead(): void {
    const [first] = this.#crew.serving
    if (!first || (this.#leader && !this.#leader.dead)) return
    this.#leader = first
    this.#hub?.lead(first.id)
  }

  /** Of the last one on a stream that all share: once everything is stored that others have sent. */
  async #ending(member: Member): Promise<boolean> {
    member.silent = true
    const others = this.#crew.members.filter((other) => other !== member)
    await Promise.all(others.filter(({ dead, dying }) => dead || dying).map(({ gone }) => gone))
    return this.#stopping !== null && this.#crew.members.every(({ silent }) => silent)
  }

  #reload(): Promise<string> {
    const reloaded = this.#reloading.then(async () => {
      await Promise.all([...this.#agreed.values()].map(({ promise }) => promise))
      const [members, sharedStream] = [this.#crew.serving, this.#hub !== null]
      // Whoever comes reads them anew.
      if (members.length === 0) return ''
      this.#inForce = await reloadTogether({ members, leader: this.#leader ?? members[0], sharedStream })
      return this.#inForce
    })
    this.#reloading = reloaded.catch(() => {})
    return reloaded
  }
}

const at = ({ host }: Settings['listen'], url: string): Settings['listen'] => ({
  host,
  port: Number(new URL(url).port || 443),
})
