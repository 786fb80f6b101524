// Clients that hold streams open, a process of its own on the other core. It is sent one job, and ends.
import { createHistogram } from 'node:perf_hooks'
import { connect, type TLSSocket } from 'node:tls'
import { cpuUsOf, rssMbOf } from '../ground/proc.ts'
import { readEvents, streamRequest, wallUs } from './events.ts'

/** The job of the clients. */
export interface StreamJob {
  readonly port: number
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string }
  readonly streams: number
  readonly everyMs: number
  readonly warmupS: number
  readonly seconds: number
  /** The process that is measured. */
  readonly pid: number
}

export interface StreamFigures {
  readonly eventsPerSecond: number
  /** The processor time of the measured process. µs per event. */
  readonly cpuUs: number | null
  /** The time from an event's sending to its arrival. µs. */
  readonly lateP50: number
  readonly lateP99: number
  readonly rssMb: number | null
  /** The answers other than 200, and the connections that broke. */
  readonly errors: number
  readonly generatorBusy: number
}

/** Handshakes at a time. */
const OPENING = 16

process.on('disconnect', () => process.exit(0))
process.on('SIGINT', () => {})
process.on('message', (job: StreamJob) => void hold(job).then((figures) => process.send?.(figures)))

async function hold(job: StreamJob): Promise<StreamFigures> {
  const late = createHistogram({ lowest: 1, highest: 60_000_000, figures: 3 })
  let [events, errors] = [0, 0]
  const request = streamRequest(job.everyMs)
  const seen = (sentUs: number): void => {
    events += 1
    late.record(Math.max(1, wallUs() - sentUs))
  }
  const open = (): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const { port, tls } = job
    const socket: TLSSocket = connect({ host: '127.0.0.1', port, servername: 'localhost', ...tls }, () => {
      socket.write(request)
      resolve()
    })
    socket.setNoDelay(true)
    socket.on('data', (piece: Buffer) => {
      readEvents(piece, seen)
      if (piece.includes('HTTP/1.1 ') && !piece.includes('HTTP/1.1 200')) errors += 1
      if (piece.includes('[DONE]')) socket.write(request)
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      errors += 1
      resolve()
    })
    return promise
  }
  for (let opened = 0; opened < job.streams; opened += OPENING)
    await Promise.all(Array.from({ length: Math.min(OPENING, job.streams - opened) }, open))
  await passed(job.warmupS)
  late.reset()
  ;[events, errors] = [0, 0]
  const [from, cpuFrom, own] = [performance.now(), cpuUsOf(job.pid), process.cpuUsage()]
  await passed(job.seconds)
  const [tookS, cpuTo, used] = [(performance.now() - from) / 1_000, cpuUsOf(job.pid), process.cpuUsage(own)]
  return {
    eventsPerSecond: events / tookS,
    cpuUs: cpuFrom === null || cpuTo === null || events === 0 ? null : (cpuTo - cpuFrom) / events,
    lateP50: late.percentile(50),
    lateP99: late.percentile(99),
    rssMb: rssMbOf(job.pid),
    errors,
    generatorBusy: (used.user + used.system) / 1_000_000 / tookS,
  }
}

const passed = (seconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, seconds * 1_000))
