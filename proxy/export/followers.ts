import type { LedgerFollower } from '../../db/ledger/cursors/follow.ts'
import { fileSink } from './file-sink.ts'
import { pageWriter } from './format.ts'
import { httpsSink } from './https-sink.ts'
import { type ExportOptions, followerName, type SinkOptions } from './options.ts'
import type { ExportSink } from './sink.ts'
import { SyslogSink } from './syslog-sink.ts'

/** The readers of the ledger that a file of sinks asks for. */
export interface ExportFollowers {
  readonly followers: readonly LedgerFollower[]
  readonly close: () => Promise<void>
}

/** Opens the sinks of a file. Connects to none before there are rows. */
export function openExport({ sinks, names }: ExportOptions): ExportFollowers {
  const opened = sinks.map((options) => ({ options, sink: sinkOf(options) }))
  return {
    followers: opened.map(({ options, sink }) => followerOf(options, sink, names)),
    close: async () => void (await Promise.all(opened.map(({ sink }) => sink.close()))),
  }
}

function sinkOf(options: SinkOptions): ExportSink {
  if (options.kind === 'file') return fileSink(options.path)
  return options.kind === 'https' ? httpsSink(options) : new SyslogSink(options)
}

function followerOf(options: SinkOptions, sink: ExportSink, names: boolean): LedgerFollower {
  const write = pageWriter(options)
  return {
    name: followerName(options),
    from: options.from,
    names,
    take: async (page, signal) => {
      const written = await write(page)
      if (written.rows.length > 0) await sink.send(written, signal)
    },
    ...(sink.doubtful && { doubtful: () => sink.doubtful?.() ?? new Map() }),
  }
}
