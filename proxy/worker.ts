// The process of one worker (docs/operating.md#workers). proxy/workers/crew.ts starts it and nothing else.
import './boot/no-debugger.ts'
import './boot/v8-flags.ts'
import cluster from 'node:cluster'
import { Socket } from 'node:net'
import { openLink } from '../db/sqlite/workers/link.ts'
import { refuseUnsafeRuntime } from './boot/runtime-check.ts'
import { visibleLines } from './visible.ts'
import { type Gateway, startGateway } from './wiring/gateway.ts'
import { nextSteps } from './wiring/next-steps.ts'
import { Channel } from './workers/channel.ts'
import { BEAT_MS, DATABASE_FD, type OfParent, type OfWorker, type Orders } from './workers/messages.ts'

/** How long calls may go on when the process above is gone, and when this one ends at the latest. ms. */
const ORPHAN_GRACE_MS = 2_000
const ORPHAN_END_MS = 4_000

// They reach the whole group of processes: the process above says what is to be done.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})

const orders = Promise.withResolvers<Orders>()
const started = orders.promise.then(start)

const above = new Channel<OfWorker, OfParent>((message) => process.send?.(message), {
  start: orders.resolve,
  load: async () => (await started).reloadSteps.load(),
  record: async () => void (await (await started).reloadSteps.record()),
  swap: async ({ reports }) => (await started).reloadSteps.swap(reports),
  reject: async ({ problem, ...share }) => (await started).reloadSteps.reject(new Error(problem), share),
  measure: async () => (await started).measure(),
  stop: async (graceMs) => stop(await started, 0, graceMs ?? undefined),
})
process.on('message', (message: object) => above.hear(message))
orphaned()

try {
  refuseUnsafeRuntime(process)
  const gateway = await started
  heedFaults(gateway)
  const { url, adminUrl } = gateway
  const { settings } = await orders.promise
  await above.ask('serving', { url, adminUrl, told: await nextSteps(settings, gateway) })
} catch (error) {
  process.stderr.write(`sallyport: ${visibleLines(error instanceof Error ? error.message : String(error))}\n`)
  process.exit(1)
}

function start({ settings, number, first, umask }: Orders): Promise<Gateway> {
  process.umask(umask)
  setInterval(() => void above.ask('beat', null).catch(() => {}), BEAT_MS).unref()
  const sqlite = settings.databaseUrl.startsWith('sqlite:')
  const link = sqlite ? openLink(new Socket({ fd: DATABASE_FD, readable: true, writable: true })) : null
  return startGateway(settings, {
    place: {
      number,
      begins: first || !sqlite,
      share: (database) => link?.share(database) ?? database,
      agree: async (digest) => {
        const agreement = await above.ask('agree', digest)
        return { ...agreement, records: agreement.records || !sqlite }
      },
      ends: async () => (await above.ask('ending', null)) || !sqlite,
      metrics: () => above.ask('metrics', null),
    },
  })
}

function stop(gateway: Gateway, code: number, graceMs?: number): void {
  void gateway.close(graceMs).then(() => process.exit(code))
}

function heedFaults(gateway: Gateway): void {
  const fault = (error: unknown): void => {
    process.stderr.write(
      `sallyport: stopping: ${visibleLines(error instanceof Error ? error.message : String(error))}\n`,
    )
    stop(gateway, 1, 2_000)
  }
  process.on('uncaughtException', fault)
  process.on('unhandledRejection', fault)
  void gateway.failed.then(fault)
}

/** Ends this process soon after the one above: nobody accepts connections for it any more, nor could it be replaced. */
function orphaned(): void {
  // Node would end it in the middle of everything.
  if (cluster.worker) cluster.worker.exitedAfterDisconnect = true
  process.once('disconnect', () => {
    above.end(new Error('the process above this worker is gone'))
    setTimeout(() => process.exit(1), ORPHAN_END_MS).unref()
    void started.then((gateway) => stop(gateway, 1, ORPHAN_GRACE_MS)).catch(() => process.exit(1))
  })
}
