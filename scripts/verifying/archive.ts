import { createHash } from 'node:crypto'
import { createReadStream, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import type { StoredRow } from '../../db/ledger/record/leaf.ts'
import type { LogTrust, SignedCheckpoint } from '../../db/ledger/tree/trusted.ts'
import { type LedgerInspection, pageOf, type RowSource } from '../../db/ledger/verify/inspect.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { isObject } from '../../db/support/json.ts'
import { inspectPack } from './inspect-pack.ts'
import { openPack } from './pack.ts'
import type { VerifyProgress } from './progress.ts'

/** A file of an archive: the leaves `first` to `last`. */
interface SegmentFile {
  readonly file: string
  readonly first: number
  readonly last: number
}

export interface InspectedSegment extends SegmentFile {
  readonly sha256: string
  readonly inspection: LedgerInspection
}

export interface ArchiveInspection {
  /** The files in their order. Never empty. */
  readonly files: readonly SegmentFile[]
  /** The segments that could be read. */
  readonly segments: readonly InspectedSegment[]
  /** The files of segments that end before the checkpoint behind which is verified. They are not read. */
  readonly skipped: readonly SegmentFile[]
  /** Faults of the folder as a whole, each as a sentence. */
  readonly findings: readonly string[]
  /** The state that the last segment leaves; null if it brings none. */
  readonly end: DigestedState | null
  readonly said: ArchiveRows
  /** Why the folder alone is too short; null if it is not. */
  readonly cutShort: string | null
}

const SEGMENT = /^(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})\.zip$/

/**
 * Verifies the segments in a folder, one after the other, and that they follow each other. Throws one sentence
 * if there are none. `trust`: makes what is trusted, for each segment anew.
 */
export async function inspectArchive(
  folder: string,
  progress: Pick<VerifyProgress, 'expect' | 'show'>,
  trust: () => LogTrust,
): Promise<ArchiveInspection> {
  const files = segmentsIn(folder)
  if (files.length === 0) throw new Error(`there is no segment in ${folder}`)
  const { since } = trust()
  const skipped = files.filter(({ last }) => last + 1 < (since?.size ?? 0))
  const wanted = files.filter((file) => !skipped.includes(file))
  progress.expect(wanted.reduce((sum, { first, last }) => sum + last + 1 - first, 0))
  const said = new ArchiveRows()
  const findings = [...gaps(files)]
  const segments: InspectedSegment[] = []
  let end: DigestedState | null = null
  for (const segment of wanted) {
    const path = join(folder, segment.file)
    try {
      const { start, stop, fault } = await edgesOf(path, segment)
      if (fault !== null) findings.push(fault)
      else if (end && start && start.sha256 !== end.sha256)
        findings.push(`${segment.file} does not begin with the state that the segment before it leaves`)
      end = stop
      const inspection = await inspectPack(
        path,
        (rows) => said.watched(progress.show(rows)),
        trustUpTo(trust(), segment, segment === wanted[0]),
      )
      segments.push({ ...segment, sha256: await digestOf(path), inspection })
    } catch (error) {
      findings.push(`${segment.file} cannot be read: ${messageOf(error)}`)
      end = null
    }
  }
  const [at, size] = [files.at(-1)?.last, since?.size]
  const cutShort =
    wanted.length === 0 ? `the folder ends with leaf ${at}, but a checkpoint of ${size} rows was kept` : null
  return { files, skipped, segments, findings, end, said, cutShort }
}

const segmentsIn = (folder: string): readonly SegmentFile[] =>
  readdirSync(folder)
    .flatMap((file) => {
      const [, first, last] = SEGMENT.exec(file) ?? []
      return first === undefined ? [] : [{ file, first: Number(first), last: Number(last) }]
    })
    .toSorted((one, other) => one.first - other.first || one.last - other.last)

function* gaps(files: readonly SegmentFile[]): Generator<string> {
  let next = files[0]?.first ?? 0
  for (const { file, first, last } of files) {
    if (first > next) yield `leaves ${next} to ${first - 1} are in no file`
    if (first < next) yield `${file} holds leaves that another file holds too`
    next = Math.max(next, last + 1)
  }
}

interface SegmentEdges {
  readonly start: DigestedState | null
  readonly stop: DigestedState | null
  readonly fault: string | null
}

/** Reads the states at both ends of a segment. */
async function edgesOf(path: string, { file, first, last }: SegmentFile): Promise<SegmentEdges> {
  const pack = await openPack(path)
  try {
    const isNamed = pack.first === first && pack.rows === last - first + 1
    const fault = isNamed
      ? null
      : `${file} holds leaves ${pack.first} to ${pack.first + pack.rows - 1}, and not those of its name`
    return { start: (await pack.start()) ?? null, stop: (await pack.end()) ?? null, fault }
  } finally {
    pack.zip.close()
  }
}

/**
 * Checkpoints that were kept elsewhere are compared with the segment that they end in; the one behind which is
 * verified with the first that is read.
 */
function trustUpTo(trust: LogTrust, { first, last }: SegmentFile, isFirst: boolean): LogTrust {
  const since = isFirst ? trust.since : undefined
  const isWithin = ({ size }: SignedCheckpoint): boolean => size > first && size <= last + 1
  return { ...trust, since, checkpoints: trust.checkpoints.filter((one) => one === since || isWithin(one)) }
}

async function digestOf(path: string): Promise<string> {
  const running = createHash('sha256')
  for await (const chunk of createReadStream(path)) running.update(chunk)
  return running.digest('hex')
}

interface ArchivedFile {
  readonly sha256: unknown
  /** The row that says it. */
  readonly row: string
}

/** Reads the rows of segments: `ledger.archived`, and `ledger.forgotten` of those that may be gone. */
export class ArchiveRows {
  readonly #files = new Map<string, ArchivedFile>()
  readonly #named = new Set<string>()

  /** The same rows. */
  async *watched(rows: RowSource): AsyncGenerator<ReturnType<typeof pageOf>> {
    for await (const next of rows) {
      const page = pageOf(next)
      for (const row of page) if (!('damaged' in row) && row.action.startsWith('ledger.')) this.#see(row)
      yield page
    }
  }

  #see({ action, stream, seq, detail }: StoredRow): void {
    const said: unknown = JSON.parse(detail)
    if (!isObject(said) || typeof said.file !== 'string') return
    this.#named.add(said.file)
    if (action === 'ledger.archived')
      this.#files.set(said.file, { sha256: said.sha256, row: `${stream}:${seq}` })
    if (action === 'ledger.forgotten') this.#files.delete(said.file)
  }

  /** Finds the files that no row names. */
  unnamed(segments: readonly InspectedSegment[]): readonly InspectedSegment[] {
    return segments.filter(({ file }) => !this.#named.has(file))
  }

  /** Compares files with the rows. Faults, each as a sentence. */
  findings({ segments, skipped }: Pick<ArchiveInspection, 'segments' | 'skipped'>): readonly string[] {
    const there = new Map(segments.map(({ file, sha256 }) => [file, sha256]))
    const unread = new Set(skipped.map(({ file }) => file))
    return [...this.#files].flatMap(([file, { sha256, row }]) => {
      if (unread.has(file)) return []
      if (!there.has(file)) return [`${file}, which row ${row} archived, is not there`]
      return there.get(file) === sha256 ? [] : [`${file} is another file than row ${row} archived`]
    })
  }
}
